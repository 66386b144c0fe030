"""Determine how long a client waits for an answer, from its request's headers."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

USUAL_S = 600.0
"""The default time-out of OpenAI's and Anthropic's SDKs. Most other SDKs wait longer, or
forever."""
_FETCH_S = 300.0
_TOLD = ("x-stainless-read-timeout", "x-stainless-timeout", "x-server-timeout")
"""Headers that state the time-out in seconds. The Python SDKs of OpenAI and Anthropic send the
first header, their other SDKs send the second, and Google's SDKs send the third."""
_ENDS_SOONER = re.compile(r"aiohttp/|\b(?:node|undici|ai-sdk|promptfoo)\b|/JS\b", re.IGNORECASE)
"""Clients whose HTTP library ends a request after `_FETCH_S`, regardless of the client's settings.
These use aiohttp, or Node's `fetch`, which waits only this long for the headers of an answer."""


def client_timeout_s(headers: Mapping[str, str]) -> float:
    """Return how many seconds a client waits for an answer; always more than 0.

    Args:
        headers: The headers of the client's request, with lower-case names.
    """
    least = _FETCH_S if _ENDS_SOONER.search(headers.get("user-agent", "")) else USUAL_S
    for name in _TOLD:
        with suppress(ValueError):
            told_s = float(headers.get(name, ""))
            if 0 < told_s < float("inf"):
                return min(told_s, _FETCH_S) if least == _FETCH_S else told_s
    return least
