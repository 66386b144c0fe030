"""One HTTP exchange, with a total deadline and a bounded answer, whole or as a stream.

httpx with aiohttp as its transport: at 300 connections httpx's own pool costs 8.4 ms of CPU per
request (it looks through all its connections each time), httpx's client over httpx-aiohttp 0.34 ms,
what is here 0.21 ms, and aiohttp alone 0.17 ms.

httpx and not httpx2, its fork to which the providers' own clients have moved: we use its names for
URLs, headers, requests, responses and errors, no more, both take 0.14 s to load, and respx
(0.23.1), by which suites put answers in the place of providers, knows httpx alone. Both may be
installed; what a suite gives its own clients is its own affair.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import aclosing, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.failure import Failure, beginning
from pytest_ultrapar.clock import boot_s
from pytest_ultrapar.engine.answers import Answer, Pieces
from pytest_ultrapar.engine.lean_httpx import httpx
from pytest_ultrapar.engine.transport import (
    Address,
    Body,
    BrokenHttpError,
    ProxyRefusedError,
    Received,
    RefusedError,
    SessionTransport,
    Unpacker,
    UntrustedError,
)
from pytest_ultrapar.pool.network import DEFAULT_TRUST, tls_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

    from pytest_ultrapar.apis.registry import Stream
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.pool.model import LaneId

LARGEST_BODY_BYTES = 16 * 1024 * 1024
_NO_CODING = frozenset({"", "identity"})
_REST_S = 0.25
"""How long the end of a body is waited for when its answer is complete: then the connection can be
used again, else it is closed."""


class _Client(httpx.AsyncClient):
    def __init__(self, transport: SessionTransport, tls: ssl.SSLContext) -> None:
        super().__init__(transport=transport, verify=tls, trust_env=False)
        self._own = transport

    async def send_plainly(
        self, address: Address, body: bytes, may_send: Callable[[], bool] | None
    ) -> Received | httpx.Response:
        """Send without httpx's layers for authentication, redirects, cookies and hooks.

        None of them is of use to an API's client, and they cost 0.06 ms of CPU per request. The
        transport is looked for where httpx does (`AsyncClient._transport_for_url`), since respx
        puts its own there; an httpx without that place has our own.
        """
        transport_for = getattr(self, "_transport_for_url", None)
        transport = self._own if transport_for is None else transport_for(address.url)
        if transport is self._own:
            return await self._own.send(address, body, may_send)
        response: httpx.Response = await transport.handle_async_request(address.request(body))
        return response


class HttpClient:
    """Sends requests to every endpoint of a run; lives on one event loop."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        max_connections: int,
        largest_bytes: int = LARGEST_BODY_BYTES,
        unheard_s: float | None = None,
    ) -> None:
        """Make a client without connections.

        Args:
            endpoints: Where its requests may go.
            max_connections: At most so many at once.
            largest_bytes: An answer with a longer body, decoded, is given up.
            unheard_s: What a server's host does not acknowledge for so long is given up, and never
                arrives there later; None leaves that to the system.
        """
        self._largest_bytes = largest_bytes
        # Reading the CA bundle takes 20 ms of every worker's start; a pool on plain loopback needs
        # none, and gets a context that trusts nobody.
        of_https = (one.route.trust for one in endpoints if one.url.startswith("https:"))
        self._contexts = {trust: tls_context(trust, _default_tls) for trust in set(of_https)}
        self._default = self._contexts.get(DEFAULT_TRUST) or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        transport = SessionTransport(
            self._default, max_connections=max_connections, unheard_s=unheard_s
        )
        self._client = _Client(transport, self._default)
        self._addresses: dict[LaneId, Address] = {}

    async def exchange(
        self,
        endpoint: Endpoint,
        body: bytes,
        *,
        timeout_s: float,
        pieces: Pieces | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> Answer | Failure:
        """Send `body` and read the whole answer, or say what went wrong.

        Args:
            endpoint: Where to, and by which method.
            body: JSON, or nothing for a GET; asks for a stream if the endpoint is one of streams.
            timeout_s: Total deadline, whatever the socket does.
            pieces: Gets a stream as it comes, but no part that makes it a failure of the server's.
            may_send: Asked when there is a connection, right before the request is written.

        Raises:
            TooLateError: `may_send` said no; nothing was sent.
        """
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.send_plainly(self._address(endpoint), body, may_send)
                first_byte_s = boot_s()
                try:
                    stream, content = None, b""
                    if _is_stream(endpoint, response):
                        stream = endpoint.reader.stream()
                        content = await _follow(stream, response, self._largest_bytes, pieces)
                    else:
                        content = await _read(response, self._largest_bytes)
                finally:
                    await response.aclose()
        except TimeoutError:
            return Failure("timeout", f"no answer within {timeout_s:g} s", maybe_billed=True)
        except httpx.DecodingError as error:
            return Failure("malformed", _say(error), maybe_billed=True)
        except httpx.HTTPError as error:
            return _transport_failure(error)
        except _TooLargeError:
            reason = f"the answer is larger than {self._largest_bytes} bytes"
            return Failure("malformed", reason, maybe_billed=True)
        return Answer(response.status_code, response.headers, content, first_byte_s, stream)

    def _address(self, endpoint: Endpoint) -> Address:
        address = self._addresses.get(endpoint.lane)
        if address is None or address.endpoint is not endpoint:
            tls = self._contexts.get(endpoint.route.trust, self._default)
            address = self._addresses[endpoint.lane] = Address.of(endpoint, tls)
        return address

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _default_tls() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


class _TooLargeError(Exception):
    """A body is larger than the client reads."""


def _is_stream(endpoint: Endpoint, response: Received | httpx.Response) -> bool:
    """Whether to read the body as a stream: a server may answer whole although asked for one."""
    if not endpoint.stream or response.status_code != HTTPStatus.OK:
        return False
    kind: str = response.headers.get("content-type", "")
    return kind.lower().startswith("text/event-stream")


async def _follow(
    chat: Stream, response: Received | httpx.Response, largest_bytes: int, reader: Pieces | None
) -> bytes:
    """Feed a stream to its end; returns all that came of it."""
    came: list[bytes] = []
    async with aclosing(_decoded(response, largest_bytes)) as pieces:
        async for piece in pieces:
            came.append(piece)
            chat.feed(piece, boot_s())
            if reader is not None:
                result = chat.reply("", 0.0) if chat.done else None
                if isinstance(result, Failure):
                    if result.outcome not in {"refused", "bad_request"}:
                        break
                    reader.failure = result
                reader.put(response.status_code, response.headers, piece)
                reader.is_whole = chat.done
            if chat.done:
                with suppress(TimeoutError, httpx.HTTPError, _TooLargeError):
                    await asyncio.wait_for(_drain(pieces), _REST_S)
                return b"".join(came)
    chat.end(boot_s())
    return b"".join(came)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    async for _ in pieces:
        pass


async def _read(response: Received | httpx.Response, largest_bytes: int) -> bytes:
    stream = response.stream
    if isinstance(stream, Body) and "content-encoding" not in response.headers:
        content = await stream.read_at_most(largest_bytes)
        if content is None:
            raise _TooLargeError
        return content
    return b"".join([piece async for piece in _decoded(response, largest_bytes)])


async def _decoded(
    response: Received | httpx.Response, largest_bytes: int
) -> AsyncGenerator[bytes, None]:
    """The body in pieces, at most `largest_bytes` in all.

    Counted after decompression, so that a small bomb cannot become a large answer.
    """
    stream = response.stream
    if isinstance(stream, Body) and stream.is_longer_than(largest_bytes):
        raise _TooLargeError
    coding = response.headers.get("content-encoding", "")
    unpacker = None if coding.strip().lower() in _NO_CODING else Unpacker(coding)
    n_bytes = 0
    # What comes is bytes: our own transport's, or a mock's in place of it.
    assert isinstance(stream, httpx.AsyncByteStream)
    async for raw in stream:
        for piece in (raw,) if unpacker is None else unpacker.steps(raw):
            n_bytes += len(piece)
            if n_bytes > largest_bytes:
                raise _TooLargeError
            yield piece
    if unpacker is not None:
        unpacker.end()


def _transport_failure(error: httpx.HTTPError) -> Failure:
    if isinstance(error, UntrustedError):
        return Failure("tls", f"certificate not trusted: {beginning(str(error))}")
    if isinstance(error, ProxyRefusedError):
        return Failure("connect", f"no tunnel to the server: {beginning(str(error))}")
    if isinstance(error, BrokenHttpError):
        return Failure("malformed", f"the answer is no HTTP: {_say(error)}", maybe_billed=True)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        failure = Failure("connect", f"cannot connect: {beginning(str(error))}")
        if not isinstance(error, RefusedError):
            return failure
        # Nobody counts a rate by refusing connections.
        return replace(failure, is_wordless=True, exceeded="in_flight")
    if isinstance(error, httpx.TimeoutException):
        return Failure("timeout", _say(error), maybe_billed=True)
    return Failure("transport", _say(error), maybe_billed=True)


def _say(error: BaseException) -> str:
    # A server's broken words may be part of it.
    said = beginning(str(error))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
