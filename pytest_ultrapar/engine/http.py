"""Make one HTTP exchange with a deadline and a size limit. The answer may be a stream.

This module uses aiohttp, which takes 0.17 ms of CPU time per request with 300 connections. httpx
takes 8.4 ms, because for each request its pool searches all connections.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import re
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http import HttpProcessingError

from pytest_ultrapar.apis.failure import Failure, beginning
from pytest_ultrapar.engine.answers import Answer, Pieces, TooLateError
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.mocks import active_mock
from pytest_ultrapar.pool.network import DEFAULT_TRUST, tls_context
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from aiohttp.client_proto import ResponseHandler

    from pytest_ultrapar.apis.failure_classes import FailedOutcome
    from pytest_ultrapar.apis.registry import Stream
    from pytest_ultrapar.pool.model import LaneId

LARGEST_BODY_BYTES = 16 * 1024 * 1024
_REST_S = 0.25
"""How long to wait for the end of a body after its stream is complete, in seconds. If the end
arrives in time, the connection can be used again. Otherwise the connection is closed."""
_LARGE_BYTES = 1 << 20
"""From this size on, aiohttp warns about bodies of type bytes.

Source: aiohttp.payload.TOO_LARGE_BYTES_BODY.
"""
_SPEAKS_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""OpenSSL's names for errors which mean that the received bytes are not TLS."""
_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "user-agent": "pytest-ultrapar",
}
_ACCEPTED = "gzip, deflate"
_REQUEST = aiohttp.ClientSession._request  # noqa: SLF001 - its public `request` calls this
"""The method as it was before any test ran, because a test may replace it with a mock."""
CONNECT_SHARE = 0.9
"""The share of a request's deadline within which it must get a connection. A request that has no
connection by then was not sent, and cannot have been billed."""
LONGEST_CONNECT_S = 30.0
KEPT_S = 1.5
"""How long an idle connection is kept open, in seconds; it may stay open twice as long. Under load,
a connection is used again within milliseconds, or within a second if more processes are grading
than there are cores. Some servers and proxies accept only a few connections. An idle connection to
such a server blocks the run's other processes, and requests that are waiting in this process.
Servers close idle connections after 2 s or more (gunicorn 2 s, uvicorn 5 s). Only a run that sends
a host fewer than one request per 1.5 s needs a new connection for each request. That takes 0.5 ms
of CPU time, or 3 ms with TLS."""
STALE_S = 1.0
"""After a connection to a host has failed, requests to this host use new connections for this many
seconds. A server that closes one idle connection also closes all others that have been idle for as
long, and the client notices within this time. If a request fails this soon after it was sent on a
kept connection, the client assumes that the server had already closed the connection."""


@dataclass(frozen=True, slots=True, repr=False)
class _Address:
    """The address for a lane's requests; `how` contains the arguments for aiohttp."""

    endpoint: Endpoint
    place: str
    connect_s: float
    how: dict[str, Any]

    @classmethod
    def of(cls, endpoint: Endpoint, tls: ssl.SSLContext) -> _Address:
        """Make the address of an endpoint; `tls` checks its server's certificate."""
        proxy = endpoint.route.proxy
        connect_s = min(CONNECT_SHARE * endpoint.timeout_s, LONGEST_CONNECT_S)
        # A proxy that compresses a stream holds back tokens until it has enough to compress.
        coding = {"accept-encoding": "identity" if endpoint.stream else _ACCEPTED}
        how = {
            "headers": {**_HEADERS, **endpoint.headers, **coding, **endpoint.authentication},
            "allow_redirects": False,
            "timeout": _timeout(connect_s),
            "ssl": tls,
            "proxy": None if proxy is None else proxy.url,
            "proxy_headers": (proxy.headers or None) if proxy is not None else None,
        }
        return cls(endpoint, urlsplit(endpoint.url).netloc, connect_s, how)


class HttpClient:
    """Sends requests to every endpoint of a run; used on one event loop.

    Attributes:
        seen_mock: The first mock that was active when a request was sent. The request bypassed it.
            None if no mock has been active so far.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        max_connections: int,
        largest_bytes: int = LARGEST_BODY_BYTES,
        unheard_s: float | None = None,
    ) -> None:
        """Make a client that has no connections yet.

        Args:
            endpoints: All endpoints to which the client sends requests.
            max_connections: The maximum number of connections at the same time.
            largest_bytes: The maximum size of a decoded body; a larger answer is a failure.
            unheard_s: Give up on data that the server's machine does not acknowledge within this
                many seconds, so that the data never arrives later. With None, the operating system
                decides when to give up.
        """
        self.seen_mock: str | None = None
        self._largest_bytes = largest_bytes
        # Reading the CA bundle takes 20 ms when a worker starts. A pool that uses only plain HTTP
        # on loopback does not need the bundle, and gets a context that trusts no certificate.
        of_https = (one.route.trust for one in endpoints if one.url.startswith("https:"))
        self._contexts = {trust: tls_context(trust, _default_tls) for trust in set(of_https)}
        self._default = self._contexts.get(DEFAULT_TRUST) or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._max_connections = max_connections
        self._unheard_s = unheard_s
        self._kept: aiohttp.ClientSession | None = None
        self._unkept: aiohttp.ClientSession | None = None
        self._stale: dict[str, float] = {}
        self._addresses: dict[LaneId, _Address] = {}

    async def exchange(
        self,
        endpoint: Endpoint,
        body: bytes,
        *,
        timeout_s: float,
        pieces: Pieces | None = None,
        may_send: Callable[[], bool] | None = None,
        is_fresh: bool = False,
    ) -> Answer | Failure:
        """Send `body` and read the whole answer, or return the failure.

        Args:
            endpoint: The destination.
            body: JSON; asks for a stream if the endpoint uses streams.
            timeout_s: The limit for the whole exchange, even while data still arrives.
            pieces: Gets a stream piece by piece as it arrives, except for a piece that reports a
                failure of the server.
            may_send: Called when there is a connection, right before the request is written.
                Returns whether to send the request.
            is_fresh: Whether to use a new connection.

        Raises:
            TooLateError: `may_send` returned False; nothing was sent.
        """
        address = self._address(endpoint)
        sending = _Sending(may_send)
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    answer = await self._send(address, body, sending, is_fresh=is_fresh)
                    first_byte_s = boot_s()
                    stop_watching = _wake_when_broken(answer)
                    try:
                        stream, content = await _body(endpoint, answer, self._largest_bytes, pieces)
                    finally:
                        # The connection stays open, and would keep the answer in memory.
                        stop_watching()
                        answer.release()
                except (aiohttp.ClientError, OSError) as error:
                    failure = _failure(error, address)
                    if failure.outcome == "transport":
                        self._stale[address.place] = boot_s() + STALE_S
                        return sending.closed(failure)
                    return failure
        except TimeoutError:
            return Failure("timeout", f"no answer within {timeout_s:g} s", maybe_billed=True)
        except _TooLargeError:
            reason = f"the answer is larger than {self._largest_bytes} bytes"
            return Failure("malformed", reason, maybe_billed=True)
        return Answer(answer.status, answer.headers, content, first_byte_s, stream)

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._kept, self._unkept):
            if session is not None:
                await session.close()

    def _address(self, endpoint: Endpoint) -> _Address:
        address = self._addresses.get(endpoint.lane)
        if address is None or address.endpoint is not endpoint:
            tls = self._contexts.get(endpoint.route.trust, self._default)
            address = self._addresses[endpoint.lane] = _Address.of(endpoint, tls)
        return address

    async def _send(
        self, address: _Address, body: bytes, sending: _Sending, *, is_fresh: bool
    ) -> aiohttp.ClientResponse:
        """Send a request and return as soon as the headers of its answer have arrived."""
        self.seen_mock = self.seen_mock or active_mock()
        asked = _SENDING.set(sending)
        try:
            answer = await _REQUEST(
                self._session_for(address, is_fresh=is_fresh),
                "POST",
                address.endpoint.url,
                # Send the body as a file: aiohttp sends files in pieces, and the loop can do other
                # work in between.
                data=io.BytesIO(body) if len(body) > _LARGE_BYTES else body or None,
                **address.how,
            )
        finally:
            _SENDING.reset(asked)
        sending.kept_since_s = None
        return answer

    def _session_for(self, address: _Address, *, is_fresh: bool) -> aiohttp.ClientSession:
        """Return a session, which makes new connections if the kept connections may be dead."""
        if not is_fresh and self._stale.get(address.place, 0.0) <= boot_s():
            self._kept = self._kept or self._session(keepalive_timeout=KEPT_S)
            return self._kept
        self._unkept = self._unkept or self._session(force_close=True)
        return self._unkept

    def _session(self, **how: Any) -> aiohttp.ClientSession:  # noqa: ANN401 - arguments of aiohttp's connector
        return aiohttp.ClientSession(
            connector=_Connector(
                limit=self._max_connections, ssl=self._default, unheard_s=self._unheard_s, **how
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_timeout(LONGEST_CONNECT_S),
        )


def _default_tls() -> ssl.SSLContext:
    import certifi  # noqa: PLC0415 - needed only for https

    return ssl.create_default_context(cafile=certifi.where())


class _TooLargeError(Exception):
    """A body is larger than the client may read."""


# -- reading an answer -----------------------------------------------------------------------------


_EVENTS = re.compile(rb"(?:data|event|id|retry)?:")
_BLANK = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may precede the first event, such as a byte order mark."""


async def _body(
    endpoint: Endpoint, answer: aiohttp.ClientResponse, largest_bytes: int, reader: Pieces | None
) -> tuple[Stream | None, bytes]:
    """Read the whole body. Return the stream that it contains, or None, and the body's bytes.

    The first bytes show whether the body is a stream. The request does not show this: a server may
    answer a request for a stream with one body, and `transformers serve` streams all responses.
    """
    stream: Stream | None = None
    came: list[bytes] = []
    begin = b""
    kind = answer.headers.get("content-type", "").lower()
    is_named = endpoint.stream and kind.startswith("text/event-stream")
    async with aclosing(_pieces(answer, largest_bytes)) as pieces:
        async for piece in pieces:
            came.append(piece)
            new = piece
            if stream is None and len(begin) < len("event:") and answer.status == HTTPStatus.OK:
                begin = (begin + piece).lstrip(_BLANK)
                # If the header announces a stream, the body is a stream unless it is JSON.
                is_other = is_named and begin and begin[:1] not in b"{["
                if is_other or _EVENTS.match(begin):
                    stream, new = endpoint.reader.stream(), b"".join(came)
            if stream is None:
                continue
            stream.feed(new, boot_s())
            if reader is not None:
                result = stream.reply("", 0.0) if stream.done else None
                if isinstance(result, Failure):
                    if result.outcome not in {"refused", "bad_request"}:
                        break
                    reader.failure = result
                reader.put(answer.status, answer.headers, new)
                reader.is_whole = stream.done
            if stream.done:
                with suppress(TimeoutError, aiohttp.ClientError, OSError, _TooLargeError):
                    async with asyncio.timeout(_REST_S):
                        async for _ in pieces:
                            pass
                return stream, b"".join(came)
    content = b"".join(came)
    if stream is None:
        # Some gateways append the last line of a stream even to a single body.
        return None, content.rstrip().removesuffix(b"data: [DONE]")
    stream.end(boot_s())
    return stream, content


async def _pieces(
    answer: aiohttp.ClientResponse, largest_bytes: int
) -> AsyncGenerator[bytes, None]:
    """Yield the decompressed body in pieces, up to `largest_bytes` in total."""
    n_bytes = 0
    if (answer.content_length or 0) > largest_bytes:
        raise _TooLargeError
    while piece := await answer.content.readany():
        n_bytes += len(piece)
        if n_bytes > largest_bytes:
            raise _TooLargeError
        yield piece


def _wake_when_broken(answer: aiohttp.ClientResponse) -> Callable[[], object]:
    """Make a read fail if a body's chunked encoding is broken; return a function that undoes this.

    aiohttp closes the connection of such a body and notifies the protocol, but not the body
    (`ResponseHandler.data_received`). So the reader would wait until the deadline.
    """
    content = answer.content
    protocol = answer.connection.protocol if answer.connection is not None else None
    if content.is_eof() or protocol is None:
        return lambda: None
    call_soon, tell = asyncio.get_running_loop().call_soon, protocol.set_exception

    def wake() -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the body's chunks cannot be read"))

    def told(error: BaseException, *cause: BaseException) -> None:
        tell(error, *cause)
        if isinstance(error, HttpProcessingError):
            call_soon(wake)  # first let the reader read the data that came before the error

    if isinstance(protocol.exception(), HttpProcessingError):
        call_soon(wake)
    vars(protocol)["set_exception"] = told
    return lambda: vars(protocol).pop("set_exception", None)


# -- making a connection ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Sending:
    """A request that has no answer yet.

    Attributes:
        may_send: As in `HttpClient.exchange`.
        kept_since_s: When the request got a kept connection; None if it got a new connection, or if
            its answer has begun.
    """

    may_send: Callable[[], bool] | None
    kept_since_s: float | None = None

    def closed(self, failure: Failure) -> Failure:
        """Change the failure to `closed` if the server had probably closed the kept connection.

        A server may close an idle connection at any time, and does not read data that arrives after
        that. llama.cpp closes the connection after each stream.
        """
        if self.kept_since_s is None or boot_s() - self.kept_since_s > STALE_S:
            return failure
        return replace(failure, outcome="closed")


_SENDING: ContextVar[_Sending] = ContextVar("sending")
"""The request that needs a connection. A context variable is necessary because aiohttp passes no
argument on to the connector."""


class _Connector(aiohttp.TCPConnector):
    """Makes connections, and then checks whether the request may still be sent.

    A new connection takes one round trip, or three with TLS, and longer while many connections are
    being made. The check comes after that, because limits per second apply to the time at which the
    request is actually sent.
    """

    def __init__(self, *, unheard_s: float | None, **how: Any) -> None:  # noqa: ANN401 - for aiohttp
        super().__init__(**how)
        self._unheard_s = unheard_s

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - its signature
    ) -> aiohttp.connector.Connection:
        sending = _SENDING.get()
        while True:
            sending.kept_since_s = boot_s()
            kept: Any = self._conns.get(req.connection_key)
            if isinstance(kept, deque):
                # Take the most recently used connection, as aiohttp before 3.11 does, so that
                # unneeded connections expire. Later releases take the connection that was used
                # least recently.
                kept.rotate(1)
            connection = await super().connect(req, traces, timeout)
            if not sending.kept_since_s:
                break
            sending.kept_since_s = boot_s()
            if connection.protocol is None or not _has_closed(connection.protocol):
                break
            connection.close()
        if sending.may_send is not None and not sending.may_send():
            connection.release()
            raise TooLateError
        return connection

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - its signature
    ) -> ResponseHandler:
        _SENDING.get().kept_since_s = None
        protocol = await super()._create_connection(req, traces, timeout)
        if self._unheard_s is not None and protocol.transport is not None:
            # The system stops resending bytes after this time, even if the socket is closed
            # earlier. Otherwise a request that the run gave up on at its deadline could still
            # arrive when the network recovers. Source: tcp(7).
            its_socket = protocol.transport.get_extra_info("socket")
            most_ms = round(self._unheard_s * 1000)
            its_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, most_ms)
        return protocol


def _has_closed(protocol: ResponseHandler) -> bool:
    """Whether an idle connection has ended or received unexpected data.

    The loop may not have noticed that yet.
    """
    transport = protocol.transport
    if transport is None or transport.is_closing() or protocol.should_close:
        return True
    look = select.poll()
    look.register(transport.get_extra_info("socket"), select.POLLIN)
    return bool(look.poll(0))


def _timeout(connect_s: float) -> aiohttp.ClientTimeout:
    # `connect` also limits how long to wait for a proxy's answer; `sock_connect` limits only the
    # connection to the proxy's socket.
    return aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s)


_UNKNOWN = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None)}
"""The errors which mean that a host name is unknown. Other errors mean that the name server
failed."""


# -- failures --------------------------------------------------------------------------------------


def _failure(error: Exception, address: _Address) -> Failure:
    """Convert an error of aiohttp or of the system to a failure.

    A request that failed before it was sent cannot have been billed.
    """
    said = beginning(str(error))
    match error:
        case aiohttp.ConnectionTimeoutError():
            return _not_connected(
                f"no connection to {address.place} within {address.connect_s:.3g} s (the smaller of"
                " 30 s and 90 % of timeout_s)"
            )
        case aiohttp.ClientConnectorCertificateError():
            # Before aiohttp 3.13, the error has no `os_error`.
            said = beginning(getattr(error.certificate_error, "verify_message", said))
            return Failure("tls", f"the certificate is not trusted: {said}")
        case aiohttp.ClientConnectorError():
            if _is_of_name(error) and error.os_error.errno in _UNKNOWN:
                return Failure("no_host", f"cannot connect: {_no_connection(error)}")
            if isinstance(error.os_error, ssl.SSLError):
                return Failure("tls", f"cannot connect: {_no_connection(error)}")
            is_proxy = isinstance(error, aiohttp.ClientProxyConnectionError)
            is_refused = error.errno == errno.ECONNREFUSED and not is_proxy
            return _not_connected(_no_connection(error), is_refused=is_refused)
        case aiohttp.ClientHttpProxyError():
            answered = f"the proxy answered {error.status} {error.message}".rstrip()
            return Failure("connect", f"no tunnel to the server: {beginning(answered)}")
        case aiohttp.ClientResponseError():
            # Remove the last line, whose marker (^) points at the mistake in the quoted data.
            return _no_http(error, error.message.rstrip(" ^\n"))
        # The type alone does not show whether the network failed
        # (`ResponseHandler.connection_lost`).
        case aiohttp.ClientPayloadError() if "ConnectionResetError" not in said:
            # The rest of the message is the repr of an object.
            return _no_http(error, str(error).partition(": <")[0])
    outcome: FailedOutcome = "timeout" if isinstance(error, TimeoutError) else "transport"
    return Failure(outcome, _named(error, said), maybe_billed=True)


def _not_connected(said: str, *, is_refused: bool = False) -> Failure:
    failure = Failure("connect", f"cannot connect: {beginning(said)}")
    # Servers do not refuse connections because of a rate limit, so assume too many requests in
    # flight.
    return replace(failure, is_wordless=True, exceeded="in_flight") if is_refused else failure


def _no_http(error: Exception, said: str) -> Failure:
    # The text may contain the server's broken data.
    reason = f"the answer is not valid HTTP: {_named(error, beginning(said))}"
    return Failure("malformed", reason, maybe_billed=True)


def _named(error: Exception, said: str) -> str:
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _is_of_name(error: aiohttp.ClientConnectorError) -> bool:
    """Whether an error means that a host name was not found.

    Before aiohttp 3.11, only the system's error shows this.
    """
    own = getattr(aiohttp, "ClientConnectorDNSError", socket.gaierror)
    return isinstance(error, own) or isinstance(error.os_error, socket.gaierror)


def _no_connection(error: aiohttp.ClientConnectorError) -> str:
    """Say why there is no connection.

    aiohttp's own message contains the names of its objects.
    """
    host = f"[{error.host}]" if ":" in error.host else error.host
    place = f"{host}:{error.port}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        host, place = f"{host} (the proxy)", f"{place} (the proxy)"
    cause = error.os_error
    if _is_of_name(error):
        return f"the host {host} cannot be found"
    if error.errno == errno.ECONNREFUSED:
        return f"nothing is listening on {place}"
    if isinstance(cause, ssl.SSLError):
        if cause.reason in _SPEAKS_NO_TLS:
            return f"{place} does not use TLS: perhaps base_url should begin with http://"
        return f"the TLS handshake with {place} failed: {cause.reason or 'no reason was given'}"
    # asyncio puts a Python tuple into `strerror`, so ask the system for the text.
    said = os.strerror(cause.errno) if cause.errno else type(cause).__name__
    return f"{place} cannot be reached: {said}"
