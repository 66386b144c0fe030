"""One question to one server: how busy is it?"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
import urllib.request

from pytest_ultrapar.lanes.adaptive.vllm_metrics import ServerLoad, parse_load
from pytest_ultrapar.pool.route import Route, tls_context

_TIMEOUT_S = 2.0
_LARGEST_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 64 * 1024


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else than where the pool says."""

    def redirect_request(self, *_: object) -> None:
        """Called by urllib: None makes the redirect an error."""
        return


def _https(url: str, route: Route) -> list[urllib.request.HTTPSHandler]:
    if not url.startswith("https:"):
        return []
    context = tls_context(route.trust, ssl.create_default_context)
    return [urllib.request.HTTPSHandler(context=context)]


def ask_load(url: str, route: Route) -> ServerLoad | None:
    """What the server at `url` says of its queue; None when it says nothing in two seconds.

    urllib, since the broker's process has no use for an HTTP client's import otherwise (90 ms). The
    pool has checked scheme and host; no redirect leads elsewhere, nor does a proxy that it does not
    name.

    Args:
        url: Of its `/metrics`.
        route: The way there.
    """
    proxy = route.proxy
    proxies = {} if proxy is None else {"https": proxy.url}
    # urllib gives this header to the proxy, and the server does not get it.
    asked = urllib.request.Request(url, headers={} if proxy is None else proxy.headers)  # noqa: S310 - checked
    until_s = time.monotonic() + _TIMEOUT_S
    with (
        contextlib.suppress(OSError, ValueError, http.client.HTTPException),
        urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), *_https(url, route), _NoRedirect()
        ).open(asked, timeout=_TIMEOUT_S) as answer,
    ):
        body = bytearray()
        # By pieces, since the time-out is that of a piece: a server may drip.
        while time.monotonic() < until_s and len(body) < _LARGEST_BYTES:
            piece = answer.read1(_PIECE_BYTES)
            if not piece:
                return parse_load(body.decode("utf-8", "replace"))
            body += piece
    return None
