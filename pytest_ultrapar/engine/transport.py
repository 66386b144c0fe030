"""httpx's transport over an aiohttp session, with nothing on the way that a POST does not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import httpx

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from pytest_ultrapar.engine.endpoints import Endpoint

_ADDRESS = "ultrapar.address"
_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "user-agent": "pytest-ultrapar",
}


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where a lane's requests go, in the words of both libraries, for each to parse once.

    Attributes:
        secret: What aiohttp sends besides the session's own headers.
    """

    url: httpx.URL
    headers: httpx.Headers
    target: str
    secret: dict[str, str]

    @classmethod
    def of(cls, endpoint: Endpoint) -> Address:
        """The address of an endpoint."""
        secret = {"authorization": f"Bearer {endpoint.token}"}
        return cls(
            url=httpx.URL(endpoint.url),
            headers=httpx.Headers({**_HEADERS, **secret}),
            target=endpoint.url,
            secret=secret,
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

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._answer.content
        while chunk := await content.readany():
            yield chunk

    async def read_at_most(self, n_bytes: int) -> bytes | None:
        """The whole body, or None when it is longer."""
        content = self._answer.content
        pieces = [await content.readany()]
        n_read = len(pieces[0])
        while n_read <= n_bytes and not content.at_eof():
            pieces.append(await content.readany())
            n_read += len(pieces[-1])
        return b"".join(pieces) if n_read <= n_bytes else None

    async def aclose(self) -> None:
        """Let the connection go: back to the others if all was read, else closed."""
        self._answer.release()


class SessionTransport(httpx.AsyncBaseTransport):
    """Sends what `Address.request` makes; lives on one event loop."""

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
            aiohttp.ClientError: The request could not be sent, or its answer not be read.
            TimeoutError: No connection was made in time.
        """
        session = self._session or self._open()
        address: Address = request.extensions[_ADDRESS]
        answer = await session.post(
            address.target, data=request.content, headers=address.secret, allow_redirects=False
        )
        return httpx.Response(answer.status, headers=answer.raw_headers, stream=Body(answer))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._max_connections, keepalive_timeout=60.0, ssl=self._tls
            ),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            auto_decompress=False,
        )
        return self._session
