"""httpx's transport over an aiohttp session, with nothing on the way that a POST does not need."""

from __future__ import annotations

import errno
import io
import os
import socket
import ssl
import time
import zlib
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http import HttpProcessingError

from pytest_ultrapar.engine.answers import TooLateError
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.lean_httpx import httpx

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import SimpleNamespace

    from aiohttp.connector import AddrInfoType

_LARGE_BYTES = 1 << 20
"""From here on aiohttp warns of bytes.

Source: aiohttp.payload.TOO_LARGE_BYTES_BODY.
"""
_SPEAKS_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""What OpenSSL calls bytes that are none of TLS."""


class BrokenHttpError(httpx.RemoteProtocolError):
    """The answer came, and is none: it breaks HTTP's own rules."""


class UntrustedError(httpx.ConnectError):
    """The server's certificate does not verify; nothing was sent."""


class RefusedError(httpx.ConnectError):
    """The host is up and takes no connection at this port; nothing was sent."""


class ProxyRefusedError(httpx.ConnectError):
    """The proxy makes no tunnel to the server; nothing was sent."""


def _sendable(body: bytes) -> bytes | io.BytesIO | None:
    """A body as aiohttp takes it: large ones in pieces, so that the loop can do other things."""
    return io.BytesIO(body) if len(body) > _LARGE_BYTES else body or None


def as_httpx(
    error: Exception, request: httpx.Request, connect_s: float | None = None
) -> httpx.TransportError:
    """The error of httpx that says what aiohttp's says.

    Args:
        error: aiohttp's, or the system's.
        request: Of the exchange that it ended.
        connect_s: How long making a connection may have taken.
    """
    kind = next((to for of, to in _KINDS if isinstance(error, of)), httpx.NetworkError)
    said = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientPayloadError) and "ConnectionResetError" in said:
        # Cut off by the network, not by whoever wrote it. Only the words tell: the error's cause is
        # the parser's complaint (aiohttp's `ResponseHandler.connection_lost`).
        kind = httpx.ReadError
    is_refused = isinstance(error, aiohttp.ClientConnectorError) and (
        error.errno == errno.ECONNREFUSED
    )
    if is_refused and not isinstance(error, aiohttp.ClientProxyConnectionError):
        kind = RefusedError
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        # It has no `os_error` before aiohttp 3.13.
        said = getattr(error.certificate_error, "verify_message", said)
    elif isinstance(error, aiohttp.ClientConnectorError):
        said = _no_connection(error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        host = request.url.netloc.decode("ascii", "replace")
        within = "in time" if connect_s is None else f"within {connect_s:.3g} s"
        said = f"no connection to {host} {within} (the smaller of 30 s and 90 % of timeout_s)"
    if isinstance(error, aiohttp.ClientResponseError):
        # Below the line that it quotes it points at what is wrong there.
        said = error.message.rstrip(" ^\n")
    if isinstance(error, aiohttp.ClientPayloadError):
        # Behind that it quotes an object.
        said = said.partition(": <")[0]
    if isinstance(error, aiohttp.ClientHttpProxyError):
        said = f"the proxy answered {error.status} {error.message}".rstrip()
    return kind(said, request=request)


def _no_connection(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection; aiohttp's own words contain the names of its objects."""
    host = f"[{error.host}]" if ":" in error.host else error.host
    place = f"{host}:{error.port}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        host, place = f"{host} (the proxy)", f"{place} (the proxy)"
    cause = error.os_error
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host {host} cannot be found"
    if error.errno == errno.ECONNREFUSED:
        return f"nothing listens on {place}"
    if isinstance(cause, ssl.SSLError):
        if cause.reason in _SPEAKS_NO_TLS:
            return f"{place} does not speak TLS: base_url should perhaps begin with http://"
        return f"the TLS handshake with {place} failed: {cause.reason or 'no reason was given'}"
    # asyncio puts a tuple of Python's into `strerror`.
    said = os.strerror(cause.errno) if cause.errno else type(cause).__name__
    return f"{place} cannot be reached: {said}"


_KINDS: tuple[tuple[type[Exception], type[httpx.TransportError]], ...] = (
    (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
    (aiohttp.ClientConnectorCertificateError, UntrustedError),
    (aiohttp.ClientConnectorError, httpx.ConnectError),
    (TimeoutError, httpx.ReadTimeout),
    (aiohttp.ServerDisconnectedError, httpx.RemoteProtocolError),
    (aiohttp.ClientHttpProxyError, ProxyRefusedError),
    (aiohttp.ClientResponseError, BrokenHttpError),
    (aiohttp.ClientPayloadError, BrokenHttpError),
    (aiohttp.InvalidURL, httpx.UnsupportedProtocol),
    (aiohttp.NonHttpUrlClientError, httpx.UnsupportedProtocol),
)


ACCEPTED = "gzip, deflate"
_STEP_BYTES = 64 * 1024
"""64 KiB of gzip can stand for 64 MiB: nobody may ask zlib for all of it at once."""
_GZIP = 16 + zlib.MAX_WBITS
_HEADER_BYTES = 2
_MEMBER = b"\x1f\x8b"
_DEFLATE = 8
"""Compression method in the first byte of zlib's header."""


class Unpacker:
    """Unpacks one body."""

    def __init__(self, coding: str) -> None:
        """Make one for a coding.

        Args:
            coding: The value of `content-encoding`.

        Raises:
            httpx.DecodingError: It is none that we asked for.
        """
        words = coding.strip().lower()
        if words not in {"gzip", "x-gzip", "deflate"}:
            msg = f"the answer's content-encoding {coding!r} was not requested"
            raise httpx.DecodingError(msg)
        self._is_gzip = words != "deflate"
        self._begin = b""
        self._zlib = zlib.decompressobj(_GZIP) if self._is_gzip else None

    def steps(self, piece: bytes) -> Iterator[bytes]:
        """What a piece of the body stands for, at most 64 KiB at a time.

        Raises:
            httpx.DecodingError: It cannot be unpacked.
        """
        while True:
            unpacking = self._zlib
            if unpacking is None or unpacking.eof:
                piece = self._begin + piece
                self._begin = piece[:_HEADER_BYTES]
                unpacking = self._unpacking(piece)
                if unpacking is None:
                    return
                self._zlib, self._begin = unpacking, b""
            try:
                unpacked = unpacking.decompress(piece, _STEP_BYTES)
            except zlib.error as error:
                msg = f"the answer cannot be unpacked: {error}"
                raise httpx.DecodingError(msg) from error
            piece = unpacking.unused_data if unpacking.eof else unpacking.unconsumed_tail
            if unpacked:
                yield unpacked
            # A full step may have left output inside although all input is taken.
            if not piece and len(unpacked) < _STEP_BYTES:
                return

    def _unpacking(self, begin: bytes) -> zlib._Decompress | None:
        """What unpacks a body, or the next member of one, that begins so; None: nothing does yet.

        A body may have several members of gzip (RFC 1952, section 2.2). What else follows the end
        is left out, as browsers do.
        """
        if len(begin) < _HEADER_BYTES:
            return None
        if self._is_gzip:
            return zlib.decompressobj(_GZIP) if begin.startswith(_MEMBER) else None
        return zlib.decompressobj(_format_of(begin)) if self._zlib is None else None

    def end(self) -> None:
        """Make sure that the body was whole.

        Raises:
            httpx.DecodingError: It was cut off.
        """
        if self._zlib is None or not self._zlib.eof:
            msg = "the compressed answer ends before its end"
            raise httpx.DecodingError(msg)


def _format_of(begin: bytes) -> int:
    """Whether a "deflate" body has zlib's header, as it should, or is bare, as some send it.

    Source: RFC 9110, section 8.4.1.2; RFC 1950, section 2.2 (CMF and FLG).
    """
    has_header = begin[0] & 0x0F == _DEFLATE and int.from_bytes(begin[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS


_ADDRESS = "ultrapar.address"
_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "user-agent": "pytest-ultrapar",
}
_OF_THE_CONNECTION = frozenset({"host", "content-length", "transfer-encoding"})
"""Headers that aiohttp writes itself."""
CONNECT_SHARE = 0.9
"""Of a request's deadline for making its connection: what has not connected then was not sent, and
cannot have been billed."""
LONGEST_CONNECT_S = 30.0
KEPT_S = 0.5
"""How long a connection without a request is kept, at most twice as long. Under load one is used
again within milliseconds. An idle one holds a place at a server or proxy that has few, and keeps
out our other processes and our own waiting requests. Only who sends less than two requests a second
to a host makes a new connection for each (0.5 ms of CPU, with TLS 3 ms)."""
STALE_S = 1.0
"""After a kept connection turned out to be dead, requests to its host make new ones for so long: a
server that closes one idle connection closes all of that age, and by then we will have seen it."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where a lane's requests go, in the words of both libraries, for each to parse once."""

    endpoint: Endpoint
    method: str
    url: httpx.URL
    headers: httpx.Headers
    target: str
    target_headers: dict[str, str]
    timeout: aiohttp.ClientTimeout
    tls: ssl.SSLContext
    proxy: str | None
    proxy_headers: dict[str, str]

    @classmethod
    def of(cls, endpoint: Endpoint, tls: ssl.SSLContext) -> Address:
        """The address of an endpoint, whose server must satisfy `tls`."""
        proxy = endpoint.route.proxy
        # A proxy that compresses a stream keeps tokens back until it has enough of them.
        coding = {"accept-encoding": "identity" if endpoint.stream else ACCEPTED}
        headers = {**_HEADERS, **endpoint.headers, **coding, **endpoint.authentication}
        return cls(
            endpoint=endpoint,
            method=endpoint.method,
            url=httpx.URL(endpoint.url),
            headers=httpx.Headers(headers),
            target=endpoint.url,
            target_headers=headers,
            timeout=_timeout(CONNECT_SHARE * endpoint.timeout_s),
            tls=tls,
            proxy=None if proxy is None else proxy.url,
            proxy_headers={} if proxy is None else proxy.headers,
        )

    def request(self, body: bytes) -> httpx.Request:
        """A request with `body`. Its headers are shared with others: nobody may change them."""
        request = httpx.Request(
            self.method, self.url, stream=httpx.ByteStream(body), extensions={_ADDRESS: self}
        )
        # Else httpx would copy them (40 us) to add a host and a length, which aiohttp does itself.
        request.headers = self.headers
        request.read()
        return request


class Body(httpx.AsyncByteStream):
    """The bytes of an answer as they come, not decoded."""

    def __init__(
        self, answer: aiohttp.ClientResponse, request: Callable[[], httpx.Request]
    ) -> None:
        self._answer = answer
        self._request = request
        self._stop_watching = None if answer.content.is_eof() else _wake_when_broken(answer)

    def is_longer_than(self, n_bytes: int) -> bool:
        """Whether the body's declared length is above that; False when none is declared."""
        declared = self._answer.content_length
        return declared is not None and declared > n_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._answer.content
        try:
            while chunk := await content.readany():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise as_httpx(error, self._request()) from error

    async def read_at_most(self, n_bytes: int) -> bytes | None:
        """The whole body, or None when it is longer.

        Raises:
            httpx.TransportError: It did not come to its end.
        """
        if self.is_longer_than(n_bytes):
            return None
        content = self._answer.content
        try:
            pieces = [await content.readany()]
            n_read = len(pieces[0])
            while n_read <= n_bytes and not content.at_eof():
                pieces.append(await content.readany())
                n_read += len(pieces[-1])
        except (aiohttp.ClientError, OSError) as error:
            raise as_httpx(error, self._request()) from error
        return b"".join(pieces) if n_read <= n_bytes else None

    async def aclose(self) -> None:
        """Let the connection go: back to the others if all was read, else closed."""
        if self._stop_watching is not None:
            # The connection lives on, and would keep the body with it.
            self._stop_watching()
        self._answer.release()


@dataclass(frozen=True, slots=True)
class Received:
    """What is read of an answer, by the names that httpx's has for it."""

    status_code: int
    headers: httpx.Headers
    stream: Body

    async def aclose(self) -> None:
        """Let its connection go."""
        await self.stream.aclose()


class SessionTransport(httpx.AsyncBaseTransport):
    """httpx's transport over aiohttp; lives on one event loop.

    Deadlines are its own and those of whoever waits, not httpx's.
    """

    def __init__(
        self, tls: ssl.SSLContext, *, max_connections: int, unheard_s: float | None = None
    ) -> None:
        """Make a transport without connections.

        Args:
            tls: For https, where a request's address does not have its own.
            max_connections: At most so many at once.
            unheard_s: What a server's host does not acknowledge for so long is given up.
        """
        self._tls = tls
        self._max_connections = max_connections
        self._new_socket = None if unheard_s is None else _giving_up(unheard_s)
        self._session: aiohttp.ClientSession | None = None
        self._unkept: aiohttp.ClientSession | None = None
        self._stale: dict[bytes, float] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; returns when the headers of its answer are there.

        Raises:
            httpx.ConnectError: No connection was made; nothing was sent.
            httpx.ConnectTimeout: As `httpx.ConnectError`, for want of time.
            httpx.TransportError: The request could not be sent, or its answer not be read.
        """
        address: Address | None = request.extensions.get(_ADDRESS)
        if address is not None:
            received = await self.send(address, request.content)
            return httpx.Response(
                received.status_code, headers=received.headers, stream=received.stream
            )
        session = self._session_for(request.method, request.url)
        try:
            answer = await session.request(
                request.method,
                str(request.url),
                data=_sendable(await request.aread()),
                headers=_own_headers(request),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            self._note(error, request.url)
            raise as_httpx(error, request) from error
        stream = Body(answer, lambda: request)
        return httpx.Response(answer.status, headers=answer.raw_headers, stream=stream)

    async def send(
        self, address: Address, body: bytes, may_send: Callable[[], bool] | None = None
    ) -> Received:
        """As `handle_async_request`, without httpx's request and response, 25 us of CPU.

        Args:
            address: Where to.
            body: What to send.
            may_send: Asked when there is a connection, right before the request is written.

        Raises:
            TooLateError: It might no longer be sent; its connection is kept for the next request.
        """
        session = self._session_for(address.method, address.url)
        asked = _MAY_SEND.set(may_send)
        try:
            answer = await session.request(
                address.method,
                address.target,
                data=_sendable(body),
                headers=address.target_headers,
                allow_redirects=False,
                timeout=address.timeout,
                ssl=address.tls,
                proxy=address.proxy,
                proxy_headers=address.proxy_headers or None,
            )
        except (aiohttp.ClientError, OSError) as error:
            self._note(error, address.url)
            raise as_httpx(error, address.request(body), address.timeout.connect) from error
        finally:
            _MAY_SEND.reset(asked)
        stream = Body(answer, partial(address.request, body))
        return Received(answer.status, httpx.Headers(answer.raw_headers), stream)

    def _note(self, error: Exception, url: httpx.URL) -> None:
        if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
            self._stale[url.netloc] = time.monotonic() + STALE_S

    async def aclose(self) -> None:
        """Close all connections."""
        for session in (self._session, self._unkept):
            if session is not None:
                await session.close()

    def _open(self) -> aiohttp.ClientSession:
        connector = _Connector(
            limit=self._max_connections,
            keepalive_timeout=KEPT_S,
            ssl=self._tls,
            socket_factory=self._new_socket,
        )
        self._session = self._made(connector)
        return self._session

    def _session_for(self, method: str, url: httpx.URL) -> aiohttp.ClientSession:
        """One that makes a new connection, where a kept one may be dead or the request is no POST.

        aiohttp sends a GET a second time when its connection breaks, which would be outside the
        lease; a session whose requests make one connection each cannot.
        """
        kept = self._session or self._open()
        if not self._stale and method == "POST":
            return kept
        host = url.netloc
        if self._stale.get(host, 0.0) <= time.monotonic():
            self._stale.pop(host, None)
            if method == "POST":
                return kept
        if self._unkept is None:
            connector = _Connector(
                limit=self._max_connections,
                force_close=True,
                ssl=self._tls,
                socket_factory=self._new_socket,
            )
            once = aiohttp.TraceConfig()
            once.on_connection_create_start.append(_connect_once)
            self._unkept = self._made(connector, once)
        return self._unkept

    def _made(
        self, connector: aiohttp.TCPConnector, *traces: aiohttp.TraceConfig
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            trace_configs=list(traces),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_timeout(LONGEST_CONNECT_S),
            auto_decompress=False,
        )


_MAY_SEND: ContextVar[Callable[[], bool] | None] = ContextVar("may_send", default=None)
"""Of the request for which a connection is made: aiohttp hands nothing of ours through to there."""


class _Connector(aiohttp.TCPConnector):
    """Asks, when there is a connection, whether its request may still be sent.

    A new one takes a round trip, three with TLS, and longer while many are made. What limits sends
    by the second must know.
    """

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - its signature
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        may_send = _MAY_SEND.get()
        if may_send is not None and not may_send():
            connection.release()
            raise TooLateError
        return connection


def _giving_up(unheard_s: float) -> Callable[[AddrInfoType], socket.socket]:
    """What makes sockets whose bytes the system sends anew for so long only, then never again.

    Not even when the socket is closed meanwhile: else what was given up at a request's deadline
    would still be delivered when a link is back. Source: tcp(7), TCP_USER_TIMEOUT.
    """

    def new_socket(address: AddrInfoType) -> socket.socket:
        made = socket.socket(*address[:3])
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(unheard_s * 1000))
        return made

    return new_socket


async def _connect_once(
    _: aiohttp.ClientSession,
    request: SimpleNamespace,
    params: aiohttp.TraceConnectionCreateStartParams,
) -> None:
    """End a request that would make a second connection; aiohttp passes one object per request."""
    if hasattr(request, "has_connected"):
        raise aiohttp.ServerDisconnectedError
    request.has_connected = True


def _timeout(connect_s: float) -> aiohttp.ClientTimeout:
    # `connect` is about a proxy's answer, too; `sock_connect` alone about its socket.
    longest_s = min(connect_s, LONGEST_CONNECT_S)
    return aiohttp.ClientTimeout(total=None, connect=longest_s, sock_connect=longest_s)


def _wake_when_broken(answer: aiohttp.ClientResponse) -> Callable[[], object] | None:
    """Make a body whose chunks are none an error for whoever waits for it.

    aiohttp closes the connection of such a body and tells its protocol, but not the body
    (`ResponseHandler.data_received`): its reader would wait until the deadline. Returns what ends
    the watching.
    """
    protocol = answer.connection.protocol if answer.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if protocol is None or closed is None:
        return None
    content = answer.content

    def wake(done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            done.exception()  # else asyncio would complain that nobody asked for it
        broken = isinstance(protocol.exception(), HttpProcessingError)
        if broken and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the body's chunks cannot be read"))

    closed.add_done_callback(wake)
    return lambda: closed.remove_done_callback(wake)


def _own_headers(request: httpx.Request) -> list[tuple[str, str]]:
    own = request.headers.multi_items()
    return [(name, value) for name, value in own if name not in _OF_THE_CONNECTION]
