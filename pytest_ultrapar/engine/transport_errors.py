"""What went wrong with an exchange, in httpx's words and two of our own."""

from __future__ import annotations

import errno
import os
import ssl

import aiohttp
import httpx

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
        # the parser's complaint (`client_proto.py:156`, aiohttp 3.14.5).
        kind = httpx.ReadError
    is_refused = isinstance(error, aiohttp.ClientConnectorError) and (
        error.errno == errno.ECONNREFUSED
    )
    if is_refused and not isinstance(error, aiohttp.ClientProxyConnectionError):
        kind = RefusedError
    if isinstance(error, aiohttp.ClientConnectorError):
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
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        said = getattr(error.certificate_error, "verify_message", said)
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
