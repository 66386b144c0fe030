"""A server on the loopback interface, for HTTP clients whose base URL and API key can be set.

It sends requests through `sdk_sender`, as an SDK in the episode does, with the same limits, retries
and attempts. The difference is that the client has its own time-out and does not know about the
pool's queue. So while a client waits for a stream to begin, the gateway sends it comments, which
usually keep it from giving up. Shortly before a client that waits for a complete answer would give
up, the gateway tells it to retry. The request keeps its place in the queue.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import aiohttp

from pytest_ultrapar.apis.gateway_errors import refusal, refusal_event
from pytest_ultrapar.engine import sdk_request
from pytest_ultrapar.engine.answers import ClientAnswer, ClientGoneError, StreamRelay
from pytest_ultrapar.engine.client_timeout import client_timeout_s
from pytest_ultrapar.engine.loop import engine_context
from pytest_ultrapar.engine.sdk_request import SdkRequest, keys_of, too_large
from pytest_ultrapar.errors import BadRequestError, InfraError, PromptRefused, UltraparError
from pytest_ultrapar.exchanges import matters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

HOST = "127.0.0.1"
_COMMENT_S = 5.0
_COMMENT = b": waiting for the pool's limits\n\n"
_HELD = 0.98
"""The share of a client's time-out after which the client is told to retry, shortly before it would
give up."""
_BACK_S = 1
"""The client is told to wait this many seconds before it retries. Its request continues
meanwhile."""
_LATER_S = 5
"""If the gateway is ending, its clients are told to wait this many seconds before they retry,
because another gateway may be running by then."""
_LEFT_S = 10.0
"""How long a client that disconnected keeps its place, in seconds. SDKs send a request again after
a time-out. If no client waits when it is the request's turn, the request is not sent."""
_IDLE_S = 30.0
"""A connection without a request is closed this long after its last answer."""
_BACKLOG = 4096
_CLOSE_S = 1.0
_RETRY_NOT = {"x-should-retry": "false"}
_KEPT = (
    "the pool's limits do not allow this request yet; send it again unchanged, with the same key, "
    "to keep its place",
    {"retry-after": str(_BACK_S), "x-should-retry": "true"},
)
_ENDING = (503, "the gateway is shutting down", {"retry-after": str(_LATER_S)})
# An SDK may append its API's version to an address that already ends with a version.
_TWICE = re.compile(r"^/v1(?=/v\d)")
_OF_THE_CONNECTION = frozenset({"content-encoding", "expect"})
# A client that does not send HTTP gets an HTTP error, so do not log a traceback on the terminal.
_SILENT = logging.Logger("ultrapar-gateway", logging.CRITICAL + 1)


class GatewaySender(Protocol):
    """Sends the requests of a gateway's clients.

    This is an episode's `SdkSender`, or, for all users of `ultrapar gateway`, a `GatewayClients`.

    Attributes:
        models: The names of the models that the clients may use.
    """

    @property
    def models(self) -> Sequence[str]: ...  # noqa: D102

    def read(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> SdkRequest:
        """Check a client's request, and make it ready to send, as `SdkSender.read` does.

        Raises:
            BadRequestError: The request may not be sent.
        """

    async def answer(self, asked: SdkRequest) -> ClientAnswer:
        """Return the answer to a request, as `SdkSender.answer` does."""


class _Place:
    """A request in progress. Its client may have disconnected.

    Attributes:
        task: The task whose result is the answer.
        key: A key that is the same for equal requests.
    """

    def __init__(self, asked: SdkRequest, task: asyncio.Task[ClientAnswer], key: bytes) -> None:
        self.asked = asked
        self.task = task
        self.key = key
        self.forgetting: asyncio.TimerHandle | None = None


class GatewaySession:
    """Gives the clients that share one token access to one `GatewaySender`.

    Attributes:
        token: The API key that these clients use.
        name: The name of the episode or gateway, for messages.
        fault: The error, if any, in the request that was answered last; otherwise None.
    """

    def __init__(self, sender: GatewaySender, name: str, token: str = "") -> None:
        self.token = token or f"ultrapar-{secrets.token_urlsafe(24)}"
        self.name = name
        self.sender = sender
        self.fault: PromptRefused | BadRequestError | None = None
        self.tasks: dict[asyncio.Task[Any], SdkRequest] = {}
        self._left: list[_Place] = []

    def place(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> _Place:
        """Return the request's place in the pool's queue.

        A client that disconnected and sends the same request again gets its place back. Any other
        request gets a new place.

        Raises:
            BadRequestError: The request may not be sent.
        """
        key = _key(method, url, headers, body)
        place = next((one for one in self._left if one.key == key), None)
        if place is not None:
            self._take_back(place)
            place.asked.progress.is_wanted = True
            return place
        try:
            asked = self.sender.read(method, url, headers, body)
        except BadRequestError as error:
            self.fault = error
            raise
        task = asyncio.ensure_future(self.sender.answer(asked))
        self.tasks[task] = asked
        task.add_done_callback(self._over)
        return _Place(asked, task, key)

    def leave(self, place: _Place, *, for_s: float, wanted: bool) -> None:
        """Keep a place while its client is disconnected.

        Args:
            place: The client's place.
            for_s: How many seconds to keep it.
            wanted: Whether to send the request even while the client is disconnected.
        """
        place.asked.progress.is_wanted = wanted
        self._left.append(place)
        place.forgetting = asyncio.get_running_loop().call_later(for_s, self._forget, place)

    def _take_back(self, place: _Place) -> None:
        self._left.remove(place)
        assert place.forgetting is not None
        place.forgetting.cancel()

    def _forget(self, place: _Place) -> None:
        self._take_back(place)
        give_up(place)

    def _over(self, task: asyncio.Task[ClientAnswer]) -> None:
        self.tasks.pop(task, None)
        if not task.cancelled():
            # Mark the error as retrieved, because the client may never come back.
            task.exception()

    def turn_away(self) -> None:
        """Cancel all requests that have not been sent yet."""
        for task, asked in self.tasks.items():
            if not asked.progress.is_sent:
                task.cancel()

    def close(self) -> None:
        """Cancel all requests in progress."""
        for task in self.tasks:
            task.cancel()
        for place in list(self._left):
            self._forget(place)


def give_up(place: _Place) -> None:
    """Cancel a request whose answer is no longer wanted, and free its seat."""
    if not place.task.done():
        place.task.cancel()
    elif not place.task.cancelled() and place.task.exception() is None:
        handed = place.task.result()
        if isinstance(handed.body, StreamRelay):
            handed.body.close()


def _key(method: str, url: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a key that is the same for equal requests."""
    asked = [method, url, *sorted(matters(headers).items())]
    return hashlib.sha256(repr(asked).encode() + b"\0" + body).digest()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Args:
        host: An address of this machine.
        port: The port; 0 means any free port.

    Raises:
        OSError: The address or port is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listening.setblocking(False)
    return listening


def in_url(host: str) -> str:
    """Return a host in the form for URLs, where an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


class Gateway:
    """The server of one process, on its engine's loop. `open` starts it.

    Args:
        listening: The socket that accepts connections; None means any free port on the loopback
            interface.
        max_wait_s: After how many seconds a client gets a 429 if its request has not been sent yet.
            If None, the client gets a 503 shortly before it would give up (`client_timeout`).
            Requests for a stream wait without a limit.

    Attributes:
        n_heard: The number of requests that arrived, including failed ones.
        n_served: The number of arrived requests whose answers are not complete yet.
        n_refused: The number of requests that were refused because the gateway is ending and whose
            client was still connected.
    """

    def __init__(
        self, listening: socket.socket | None = None, max_wait_s: float | None = None
    ) -> None:
        self.n_heard = self.n_served = self.n_refused = 0
        self._listening = listening
        self._max_wait_s = max_wait_s
        self._sessions: dict[str, GatewaySession] = {}
        self._address = ""
        self._starting: asyncio.Task[None] | None = None
        self._listener: asyncio.Server | None = None
        self._server: web.Server | None = None
        self._is_ending = False
        self._idle = asyncio.Event()

    def open(self) -> str:
        """Return the address, `http://HOST:PORT`; the first call starts to listen.

        Raises:
            RuntimeError: The first call was made in an episode's thread.
        """
        if self._starting is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                raise RuntimeError(
                    "llm.base_url was first read in a thread: read it in the episode itself, "
                    "before the thread starts"
                ) from None
            listening = self._listening = self._listening or listen(HOST, 0)
            host, port = listening.getsockname()[:2]
            self._address = f"http://{in_url(host)}:{port}"
            # The server is for all episodes, so do not run it in the context of the first episode.
            self._starting = engine_context().run(loop.create_task, self._serve(listening))
            # If the server cannot start, refuse connections instead of letting them wait.
            self._starting.add_done_callback(
                lambda done: listening.close() if done.cancelled() or done.exception() else None
            )
        return self._address

    async def _serve(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        # The server is half of the HTTP library, and runs without a gateway never load it. Load it
        # in a separate thread, because clients that wait for this server may use all threads of the
        # loop.
        own = ThreadPoolExecutor(1, "ultrapar-gateway")
        try:
            library = await loop.run_in_executor(own, import_module, "aiohttp.web")
        finally:
            own.shutdown(wait=False)
        server = self._server = library.Server(
            self._handled,
            handler_cancellation=True,
            access_log=None,
            logger=_SILENT,
            keepalive_timeout=_IDLE_S,
        )
        self._listener = await loop.create_server(server, sock=listening, backlog=_BACKLOG)

    def admit(self, sender: GatewaySender, name: str, token: str = "") -> GatewaySession:
        """Admit clients with a token.

        Args:
            sender: Sends the requests of these clients.
            name: The name of the episode or gateway, for messages.
            token: The clients' token; if empty, a new one is made.
        """
        session = GatewaySession(sender, name, token)
        self._sessions[session.token] = session
        return session

    def dismiss(self, session: GatewaySession) -> None:
        """Make a token invalid, and cancel all requests that came with it."""
        if self._sessions.pop(session.token, None) is not None:
            session.close()

    async def drain(self) -> None:
        """Stop sending requests, and wait until all sent requests have answers.

        Waiting and new requests get a 503. If a waiting client has already been sent comments, it
        gets an error event instead.
        """
        self._is_ending = True
        for session in self._sessions.values():
            session.turn_away()
        if self.n_served:
            await self._idle.wait()

    async def close(self) -> None:
        """Cancel all requests and stop listening."""
        self._is_ending = True
        if self._starting is None:
            return
        # Close everything else even if the start failed.
        await asyncio.wait({self._starting}, timeout=_CLOSE_S)
        self._starting.cancel()
        for session in list(self._sessions.values()):
            self.dismiss(session)
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(_CLOSE_S)
        if self._listening is not None:
            # Clients whose requests have not been read yet see that the connection is closed.
            self._listening.close()

    # -- one request -------------------------------------------------------------------------------

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        self.n_heard += 1
        self.n_served += 1
        try:
            return await self._served(request)
        except Exception as error:  # the client gets a sentence about the internal error
            logging.getLogger(__name__).exception("a request to the gateway failed")
            path = urlsplit(request.raw_path).path
            said = f"the gateway failed: {type(error).__name__}"
            return _said(path, HTTPStatus.INTERNAL_SERVER_ERROR, said)
        finally:
            self.n_served -= 1
            if self._is_ending and not self.n_served:
                self._idle.set()

    async def _served(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {
            name.lower(): value
            for name, value in request.headers.items()
            if name.lower() not in _OF_THE_CONNECTION
        }
        url = request.raw_path
        try:
            session = self._session(url, headers)
            url = _TWICE.sub("", url)
            if request.method == "GET" and urlsplit(url).path.endswith("/models"):
                own = [
                    {"id": n, "object": "model", "owned_by": "pool"} for n in session.sender.models
                ]
                return aiohttp.web.json_response({"object": "list", "data": own})
            body = await _body(request)
            if self._is_ending:
                self.n_refused += 1
                return _said(urlsplit(url).path, *_ENDING)
            place = session.place(request.method, url, headers, body)
        except _RefusedError as refused:
            return _said(urlsplit(url).path, refused.status, str(refused))
        except BadRequestError as error:
            return _said(urlsplit(url).path, HTTPStatus.BAD_REQUEST, str(error))
        hold_s = self._max_wait_s or _HELD * client_timeout_s(headers)
        return await self._answered(request, session, place, urlsplit(url).path, hold_s)

    def _session(self, url: str, headers: Mapping[str, str]) -> GatewaySession:
        """Find the session to which a request's token belongs.

        Raises:
            _RefusedError: The token is unknown.
        """
        for token in keys_of(urlsplit(url).query, headers):
            if token in self._sessions:
                return self._sessions[token]
        said = (
            "the request has no key that this gateway knows: give the client the gateway's token "
            "or, in an episode, llm.api_key, which is valid until the case ends"
        )
        raise _RefusedError(HTTPStatus.UNAUTHORIZED, said)

    async def _answered(
        self,
        request: web.BaseRequest,
        session: GatewaySession,
        place: _Place,
        path: str,
        hold_s: float,
    ) -> web.StreamResponse:
        begun: web.StreamResponse | None = None
        try:
            if place.asked.pieces is None:
                if not await _waited(place, hold_s):
                    session.leave(place, for_s=hold_s + _LEFT_S, wanted=True)
                    return _said(path, 429 if self._max_wait_s else 503, *_KEPT)
            else:
                begun = await _commented(request, place)
        except (asyncio.CancelledError, ConnectionError):
            # The client has disconnected. If its request was sent, cancel it. Otherwise keep the
            # request, because the client may come back.
            if place.asked.progress.is_sent or place.task.done():
                give_up(place)
            else:
                session.leave(place, for_s=_LEFT_S, wanted=False)
            raise
        try:
            handed = place.task.result()
        except asyncio.CancelledError:
            if self._is_ending:
                self.n_refused += request.transport is not None
                return await _failed(begun, path, *_ENDING)
            said = f"{session.name} has ended, and its requests were cancelled"
            return await _failed(begun, path, HTTPStatus.UNAUTHORIZED, said)
        except BadRequestError as error:
            return await _failed(begun, path, HTTPStatus.BAD_REQUEST, str(error))
        except (UltraparError, RuntimeError, ClientGoneError) as error:
            return await _failed(begun, path, _status(error), str(error))
        session.fault = handed.fault
        return await _handed_over(request, begun, path, handed)


async def _waited(place: _Place, hold_s: float) -> bool:
    """Wait for an answer; return False if the request has waited too long for its turn."""
    await asyncio.wait({place.task}, timeout=hold_s)
    if not place.task.done() and not place.asked.progress.is_sent:
        return False
    await asyncio.wait({place.task})
    return True


def _status(error: BaseException) -> HTTPStatus:
    is_late = isinstance(error, InfraError) and error.kind == "timeout"
    return HTTPStatus.GATEWAY_TIMEOUT if is_late else HTTPStatus.BAD_GATEWAY


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def _body(request: web.BaseRequest) -> bytes:
    """Read the whole body.

    Raises:
        _RefusedError: The body cannot be read or is too large. The rest is discarded.
    """
    too_much = _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large())
    if (request.content_length or 0) > sdk_request.LARGEST_REQUEST_BYTES:
        raise too_much
    body = bytearray()
    try:
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > sdk_request.LARGEST_REQUEST_BYTES:
                raise too_much
    except (aiohttp.web.RequestPayloadError, aiohttp.http.HttpProcessingError) as error:
        said = f"the body of a request cannot be read: {error}"
        raise _RefusedError(HTTPStatus.BAD_REQUEST, said) from None
    return bytes(body)


def _said(
    path: str, status: int, message: str, headers: Mapping[str, str] = _RETRY_NOT
) -> web.StreamResponse:
    headers = {"content-type": "application/json", **headers}
    return aiohttp.web.Response(status=status, body=refusal(path, status, message), headers=headers)


async def _commented(request: web.BaseRequest, place: _Place) -> web.StreamResponse | None:
    """Wait for a stream to begin, and send a comment every `_COMMENT_S` seconds meanwhile.

    Returns:
        The response that was started for the comments; None if no comment was sent.
    """
    begun: web.StreamResponse | None = None
    while True:
        await asyncio.wait({place.task}, timeout=_COMMENT_S)
        if place.task.done():
            return begun
        if begun is None:
            headers = {"content-type": "text/event-stream", "cache-control": "no-cache"}
            begun = aiohttp.web.StreamResponse(status=HTTPStatus.OK, headers=headers)
            await begun.prepare(request)
        await begun.write(_COMMENT)


async def _failed(begun: web.StreamResponse | None, path: str, *said: Any) -> web.StreamResponse:  # noqa: ANN401 - as for `_said`
    if begun is None:
        return _said(path, *said)
    return await _broken_off(begun, path, refusal(path, *said[:2]))


async def _broken_off(begun: web.StreamResponse, path: str, body: bytes) -> web.StreamResponse:
    """Send an error event on a stream that was started only for comments, and end the stream."""
    with suppress(ConnectionError):
        await begun.write(refusal_event(path, body))
        await begun.write_eof()
    return begun


async def _handed_over(
    request: web.BaseRequest, begun: web.StreamResponse | None, path: str, handed: ClientAnswer
) -> web.StreamResponse:
    body = handed.body
    if isinstance(body, bytes):
        if begun is not None:
            return await _broken_off(begun, path, body)
        return aiohttp.web.Response(status=handed.status, body=body, headers=handed.headers)
    response = begun
    try:
        if response is None:
            response = aiohttp.web.StreamResponse(status=handed.status, headers=handed.headers)
            await response.prepare(request)
        while piece := await body.next():
            await response.write(piece)
        await response.write_eof()
    except (InfraError, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if response is None or (task is not None and task.cancelling()):
            raise
        said = str(error) or "the gateway, or the case that sent the request, has ended"
        with suppress(ConnectionError):
            await response.write(refusal_event(path, refusal(path, _status(error), said)))
        # Close the connection, because a stream with a regular end would look complete.
        if request.transport is not None:
            request.transport.close()
    finally:
        body.close()
    assert response is not None
    return response
