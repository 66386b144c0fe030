"""httpx's transport over an aiohttp session, with nothing on the way that a POST does not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import httpx
from aiohttp.http import HttpProcessingError

from pytest_ultrapar.engine.content_coding import ACCEPTED

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import AsyncIterator, Callable

    from pytest_ultrapar.engine.endpoints import Endpoint

_ADDRESS = "ultrapar.address"
_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "user-agent": "pytest-ultrapar",
}


_OF_THE_CONNECTION = frozenset({"host", "content-length", "transfer-encoding"})
"""Headers that aiohttp writes itself."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where a lane's requests go, in the words of both libraries, for each to parse once."""

    url: httpx.URL
    headers: httpx.Headers
    target: str
    target_headers: dict[str, str]

    @classmethod
    def of(cls, endpoint: Endpoint) -> Address:
        """The address of an endpoint."""
        # A proxy that compresses a stream keeps tokens back until it has enough of them.
        coding = {"accept-encoding": "identity" if endpoint.stream else ACCEPTED}
        headers = {**_HEADERS, **coding, **endpoint.authentication}
        return cls(
            url=httpx.URL(endpoint.url),
            headers=httpx.Headers(headers),
            target=endpoint.url,
            target_headers=headers,
        )

    def request(self, body: bytes) -> httpx.Request:
        """A POST of `body`. Its headers are shared with others: nobody may change them."""
        request = httpx.Request(
            "POST", self.url, stream=httpx.ByteStream(body), extensions={_ADDRESS: self}
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
            raise _as_httpx(error, self._request) from error

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
            raise _as_httpx(error, self._request) from error
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

    def __init__(self, tls: ssl.SSLContext, *, max_connections: int, connect_s: float) -> None:
        """Make a transport without connections.

        Args:
            tls: For https.
            max_connections: At most so many at once.
            connect_s: Deadline for making one.
        """
        self._tls = tls
        self._max_connections = max_connections
        self._connect_s = connect_s
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; returns when the headers of its answer are there.

        Raises:
            httpx.ConnectError: No connection was made; nothing was sent.
            httpx.ConnectTimeout: As `httpx.ConnectError`, for want of time.
            httpx.TransportError: The request could not be sent, or its answer not be read.
        """
        session = self._session or self._open()
        address: Address | None = request.extensions.get(_ADDRESS)
        try:
            if address is not None:
                answer = await session.post(
                    address.target,
                    data=request.content,
                    headers=address.target_headers,
                    allow_redirects=False,
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
            raise _as_httpx(error, request) from error
        stream = Body(answer, request)
        return httpx.Response(answer.status, headers=answer.raw_headers, stream=stream)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._max_connections, keepalive_timeout=60.0, ssl=self._tls
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            auto_decompress=False,
        )
        return self._session


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


def _as_httpx(error: Exception, request: httpx.Request) -> httpx.TransportError:
    """The error of httpx that says what aiohttp's says."""
    kinds: tuple[tuple[type[Exception], type[httpx.TransportError]], ...] = (
        (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
        (aiohttp.ClientConnectorError, httpx.ConnectError),
        (TimeoutError, httpx.ReadTimeout),
        (aiohttp.ServerDisconnectedError, httpx.RemoteProtocolError),
        (aiohttp.ClientResponseError, httpx.RemoteProtocolError),
        (aiohttp.ClientPayloadError, httpx.ReadError),
        (aiohttp.InvalidURL, httpx.UnsupportedProtocol),
        (aiohttp.NonHttpUrlClientError, httpx.UnsupportedProtocol),
    )
    kind = next((to for of, to in kinds if isinstance(error, of)), httpx.NetworkError)
    return kind(str(error) or type(error).__name__, request=request)
