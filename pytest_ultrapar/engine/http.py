"""One HTTP exchange, with a total deadline and a bounded answer.

httpx with aiohttp as its transport: at 300 connections httpx's own pool costs 8.4 ms of CPU per
request (it looks through all its connections each time), aiohttp's connector 0.4 ms, behind the
same httpx seam.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from pytest_ultrapar.engine.failure import Failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from pytest_ultrapar.engine.endpoints import Endpoint

LARGEST_BODY_BYTES = 16 * 1024 * 1024
_CONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP response.

    Attributes:
        t_first_byte_s: When its headers had arrived, monotonic seconds.
    """

    status: int
    headers: httpx.Headers
    body: bytes
    t_first_byte_s: float


class _NoCookies(httpx.Cookies):
    """A jar that stays empty: an API's cookies are of no use to anybody here."""

    def extract_cookies(self, response: httpx.Response) -> None:
        """Leave the response's cookies where they are."""


class _Client(httpx.AsyncClient):
    """httpx's client without cookies, for looking for them cost 0.035 ms of CPU per answer."""

    _no_cookies = _NoCookies()

    @property
    def cookies(self) -> httpx.Cookies:
        """Always none."""
        return self._no_cookies

    @cookies.setter
    def cookies(self, cookies: object) -> None:
        msg = f"cookies are not kept, nor can they be set (got {type(cookies).__name__})"
        raise TypeError(msg)


class HttpClient:
    """Sends requests to every endpoint of a run; lives on one event loop."""

    def __init__(self, endpoints: Iterable[Endpoint], *, max_connections: int) -> None:
        # httpx-aiohttp 0.2.0 takes `max_connections=None` as aiohttp's default of 100, so the
        # number is set here.
        self._max_connections = max_connections
        # Reading the CA bundle takes 20 ms of every worker's start; a pool on plain loopback needs
        # none, and gets a context that trusts nobody.
        needs_tls = any(endpoint.url.startswith("https:") for endpoint in endpoints)
        self._tls = (
            httpx.create_ssl_context(trust_env=False)
            if needs_tls
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._client = _Client(
            transport=AiohttpTransport(client=self._session, verify=self._tls),
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            follow_redirects=False,
            trust_env=False,
        )
        self._headers: dict[tuple[str, str], httpx.Headers] = {}
        self._urls: dict[str, httpx.URL] = {}

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._max_connections, keepalive_timeout=60.0, ssl=self._tls
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S),
            auto_decompress=False,
        )

    async def exchange(
        self, endpoint: Endpoint, body: bytes, *, timeout_s: float
    ) -> Answer | Failure:
        """POST `body` and read the whole answer, or say what went wrong.

        Args:
            endpoint: Where to.
            body: JSON.
            timeout_s: Total deadline, whatever the socket does.
        """
        sent = False
        try:
            async with asyncio.timeout(timeout_s):
                request = self._request(endpoint, body)
                response = await self._client.send(request, stream=True)
                sent = True
                first_byte_s = time.monotonic()
                try:
                    content = await _read(response)
                finally:
                    await response.aclose()
                if content is None:
                    return Failure(
                        "malformed",
                        f"the answer is larger than {LARGEST_BODY_BYTES} bytes",
                        maybe_billed=True,
                    )
                return Answer(response.status_code, response.headers, content, first_byte_s)
        except TimeoutError:
            return Failure("timeout", f"no answer within {timeout_s:g} s", maybe_billed=True)
        except httpx.DecodingError as error:
            return Failure("malformed", _say(error), maybe_billed=True)
        except (httpx.HTTPError, OSError, aiohttp.ClientError) as error:
            return _transport_failure(error, sent=sent)

    def _request(self, endpoint: Endpoint, body: bytes) -> httpx.Request:
        # Headers and URL are the same for every request of a lane: parsing them anew cost 60 us
        # each time, and 40 us that httpx would copy them in order to add a host and a length,
        # which aiohttp writes by itself. Nobody changes the headers of a request on its way.
        url = self._urls.get(endpoint.url)
        if url is None:
            url = self._urls[endpoint.url] = httpx.URL(endpoint.url)
        place = (endpoint.provider, endpoint.key)
        headers = self._headers.get(place)
        if headers is None:
            headers = self._headers[place] = httpx.Headers(
                {
                    "authorization": f"Bearer {endpoint.token}",
                    "content-type": "application/json",
                    "accept": "application/json",
                    "accept-encoding": "gzip, deflate",
                    "user-agent": "pytest-ultrapar",
                }
            )
        request = httpx.Request("POST", url, stream=httpx.ByteStream(body))
        request.headers = headers
        request.read()
        return request

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


async def _read(response: httpx.Response) -> bytes | None:
    # Counted after decompression, so that a small bomb cannot become a large answer.
    chunks: list[bytes] = []
    n_bytes = 0
    async for chunk in _body(response):
        n_bytes += len(chunk)
        if n_bytes > LARGEST_BODY_BYTES:
            return None
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _body(response: httpx.Response) -> AsyncIterator[bytes]:
    """The decoded body in pieces.

    Where nothing needs decoding the transport's own pieces will do: httpx's decoder would pass them
    on through two more generators, 15 us of CPU per answer.
    """
    stream = response.stream
    encoded = any(name.lower() == b"content-encoding" for name, _ in response.headers.raw)
    if encoded or not isinstance(stream, httpx.AsyncByteStream):
        return response.aiter_bytes()
    return aiter(stream)


def _transport_failure(error: Exception, *, sent: bool) -> Failure:
    # httpx-aiohttp 0.2.0 calls every lost connection a ConnectTimeout (transport.py:18), so the
    # cause decides.
    cause = error.__cause__ or error
    if isinstance(cause, aiohttp.ClientConnectorError | httpx.ConnectError):
        return Failure("connect", f"cannot connect: {_say(cause)}")
    if isinstance(cause, TimeoutError | httpx.TimeoutException):
        return Failure("timeout", _say(cause), maybe_billed=True)
    return Failure("transport", _say(cause), maybe_billed=sent or not isinstance(cause, OSError))


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
