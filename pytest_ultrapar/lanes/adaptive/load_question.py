"""One question to one server: how busy is it?"""

from __future__ import annotations

import contextlib
import http.client
import time
import urllib.request

from pytest_ultrapar.lanes.adaptive.vllm_metrics import ServerLoad, parse_load

_TIMEOUT_S = 2.0
_LARGEST_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 64 * 1024


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else than where the pool says."""

    def redirect_request(self, *_: object) -> None:
        """Called by urllib: None makes the redirect an error."""
        return


def ask_load(url: str) -> ServerLoad | None:
    """What the server at `url` says of its queue; None when it says nothing in two seconds.

    urllib, since the broker's process has no use for an HTTP client's import otherwise (90 ms). The
    pool has checked scheme and host; no proxy and no redirect leads elsewhere.

    Args:
        url: Of its `/metrics`.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    until_s = time.monotonic() + _TIMEOUT_S
    with (
        contextlib.suppress(OSError, ValueError, http.client.HTTPException),
        opener.open(url, timeout=_TIMEOUT_S) as answer,
    ):
        body = bytearray()
        # By pieces, since the time-out is that of a piece: a server may drip.
        while time.monotonic() < until_s and len(body) < _LARGEST_BYTES:
            piece = answer.read1(_PIECE_BYTES)
            if not piece:
                return parse_load(body.decode("utf-8", "replace"))
            body += piece
    return None
