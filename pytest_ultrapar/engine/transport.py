"""httpx's transport over an aiohttp session, with nothing on the way that a POST does not need."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import httpx
from aiohttp.http import HttpProcessingError

from pytest_ultrapar.engine.content_coding import ACCEPTED
from pytest_ultrapar.engine.transport_errors import as_httpx

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable
    from types import SimpleNamespace

    from pytest_ultrapar.engine.endpoints import Endpoint

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
        headers = {**_HEADERS, **coding, **endpoint.authentication}
        return cls(
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

    def __init__(self, answer: aiohttp.ClientResponse, request: httpx.Request) -> None:
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
            raise as_httpx(error, self._request) from error

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
            raise as_httpx(error, self._request) from error
        return b"".join(pieces) if n_read <= n_bytes else None

    async def aclose(self) -> None:
        """Let the connection go: back to the others if all was read, else closed."""
        if self._stop_watching is not None:
            # The connection lives on, and would keep the body with it.
            self._stop_watching()
        self._answer.release()


class SessionTransport(httpx.AsyncBaseTransport):
    """httpx's transport over aiohttp; lives on one event loop.

    Fastest for what `Address.request` makes. Deadlines are its own and those of whoever waits, not
    httpx's.
    """

    def __init__(self, tls: ssl.SSLContext, *, max_connections: int) -> None:
        """Make a transport without connections.

        Args:
            tls: For https, where a request's address does not have its own.
            max_connections: At most so many at once.
        """
        self._tls = tls
        self._max_connections = max_connections
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
        session = self._session or self._open()
        if self._stale or request.method != "POST":
            session = self._session_for(request)
        try:
            if address is not None:
                answer = await session.request(
                    address.method,
                    address.target,
                    data=request.content or None,
                    headers=address.target_headers,
                    allow_redirects=False,
                    timeout=address.timeout,
                    ssl=address.tls,
                    proxy=address.proxy,
                    proxy_headers=address.proxy_headers or None,
                )
            else:
                answer = await session.request(
                    request.method,
                    str(request.url),
                    data=await request.aread() or None,
                    headers=_own_headers(request),
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
                self._stale[request.url.netloc] = time.monotonic() + STALE_S
            connect_s = None if address is None else address.timeout.connect
            raise as_httpx(error, request, connect_s) from error
        stream = Body(answer, request)
        return httpx.Response(answer.status, headers=answer.raw_headers, stream=stream)

    async def aclose(self) -> None:
        """Close all connections."""
        for session in (self._session, self._unkept):
            if session is not None:
                await session.close()

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._max_connections, keepalive_timeout=KEPT_S, ssl=self._tls
        )
        self._session = self._made(connector)
        return self._session

    def _session_for(self, request: httpx.Request) -> aiohttp.ClientSession:
        """One that makes a new connection, where a kept one may be dead or the request is no POST.

        aiohttp sends a GET a second time when its connection breaks, which would be outside the
        lease; a session whose requests make one connection each cannot.
        """
        assert self._session is not None
        host = request.url.netloc
        if self._stale.get(host, 0.0) <= time.monotonic():
            self._stale.pop(host, None)
            if request.method == "POST":
                return self._session
        if self._unkept is None:
            connector = aiohttp.TCPConnector(
                limit=self._max_connections, force_close=True, ssl=self._tls
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
    (`client_proto.py:359`, 3.14.5): its reader would wait until the deadline. Returns what ends the
    watching.
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
