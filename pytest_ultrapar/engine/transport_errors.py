"""What went wrong with an exchange, in httpx's words and two of our own."""

from __future__ import annotations

import errno

import aiohttp
import httpx


class BrokenHttpError(httpx.RemoteProtocolError):
    """The answer came, and is none: it breaks HTTP's own rules."""


class UntrustedError(httpx.ConnectError):
    """The server's certificate does not verify; nothing was sent."""


class RefusedError(httpx.ConnectError):
    """The host is up and takes no connection at this port; nothing was sent."""


class ProxyRefusedError(httpx.ConnectError):
    """The proxy makes no tunnel to the server; nothing was sent."""


def as_httpx(error: Exception, request: httpx.Request) -> httpx.TransportError:
    """The error of httpx that says what aiohttp's says."""
    kind = next((to for of, to in _KINDS if isinstance(error, of)), httpx.NetworkError)
    said = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientPayloadError) and "ConnectionResetError" in said:
        # Cut off by the network, not by whoever wrote it. Only the words tell: the error's cause is
        # the parser's complaint (`client_proto.py:156`, aiohttp 3.14.5).
        kind = httpx.ReadError
    is_refused = isinstance(error, aiohttp.ClientConnectorError) and (
        error.errno == errno.ECONNREFUSED
    )
    if is_refused and not isinstance(error, aiohttp.ClientProxyConnectionError):
        kind = RefusedError
    if isinstance(error, aiohttp.ClientHttpProxyError):
        said = f"the proxy answered {error.status} {error.message}".rstrip()
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        said = getattr(error.certificate_error, "verify_message", said)
    return kind(said, request=request)


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
