"""Read the provider's limits from the headers `x-ratelimit-*` and `anthropic-ratelimit-*`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.apis.retry_after import duration_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LONGEST_TEXT = 40
_LARGEST = 1e12
_SLOW_S = 120.0
"""A limit per minute never takes longer than this to become fully available again, even if the
server rounds the time up."""


def parse_allowance(headers: Mapping[str, str]) -> Allowance | None:
    """Return the limits in `x-ratelimit-*`, or None if there is no usable limit.

    Both returned limits are per minute. In OpenAI's lower tiers and on some gateways, the same
    headers report a limit on requests per day or per several hours. Only the time until the whole
    limit is available again reveals this; the limit per minute is then unknown. A limit also counts
    as unknown if its value is negative, unreadable, not finite, repeated or 0. Azure sends 0 or -1
    for an unknown limit.

    Args:
        headers: Response headers, by lower-case name.

    Source: OpenAI's guide on rate limits, "Rate limits in headers"; for -1 and 0,
    learn.microsoft.com/answers/questions/5625878.
    """
    requests = _number(headers.get("x-ratelimit-limit-requests"))
    if requests and _fills_slowly(requests, headers):
        requests = None
    return _allowance(requests, _number(headers.get("x-ratelimit-limit-tokens")))


def parse_anthropic_allowance(headers: Mapping[str, str]) -> Allowance | None:
    """Return the limits in `anthropic-ratelimit-*`, or None if there is no usable limit.

    Input and output tokens have separate limits. The headers for `tokens` report the limit that is
    closest to being reached.

    Args:
        headers: Response headers, by lower-case name.

    Source: docs.claude.com, "Rate limits", section "Response headers".
    """
    name = "anthropic-ratelimit-{}-limit"
    requests, tokens = (_number(headers.get(name.format(one))) for one in ("requests", "tokens"))
    return _allowance(requests, tokens)


def _allowance(requests: float | None, tokens: float | None) -> Allowance | None:
    return Allowance(requests or None, tokens or None) if requests or tokens else None


def _fills_slowly(limit: float, headers: Mapping[str, str]) -> bool:
    """Whether the reset time shows that the bucket fills too slowly for a limit per minute.

    OpenAI sends the time until the bucket is full again, as a duration ("6m0s", "20ms"). If the
    limit is 10,000 requests per day, the bucket is full again 8.64 s after one request. Azure sends
    the whole seconds until the window ends, which show nothing about the bucket.
    """
    left = _number(headers.get("x-ratelimit-remaining-requests"))
    words = headers.get("x-ratelimit-reset-requests", "").strip()
    reset_s = duration_of(words) if len(words) <= _LONGEST_TEXT else None
    if left is None or reset_s is None:
        return False
    if reset_s > _SLOW_S:
        return True
    # A second or less may be rounded up from any value.
    taken = limit - left
    return taken > 0 and reset_s > 1.0 and reset_s * limit > _SLOW_S * taken


def _number(text: str | None) -> float | None:
    # `strip` and `float` differ in the white space that they accept.
    words = "" if text is None or len(text) > _LONGEST_TEXT else text.strip()
    if not _NUMBER.fullmatch(words):
        return None
    number = float(words)
    return number if number <= _LARGEST else None
