"""What the headers `x-ratelimit-*` say of the limits that a provider holds us to."""

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
"""Twice a minute: a server's sums and roundings make no other limit of one per minute."""


def parse_allowance(headers: Mapping[str, str]) -> Allowance | None:
    """What `x-ratelimit-*` says, or None when it says nothing that can be used.

    Both limits count per minute. OpenAI's lower tiers and some gateways count requests per day or
    some hours under the same names, and nothing but the time until all is there again shows it:
    then the limit per minute is not known. Nor is one that is negative, unreadable, not finite or
    there twice, or 0 or -1, as Azure has it where it does not say.

    Args:
        headers: Response headers with lower-case lookup.

    Source: OpenAI's guide on rate limits, "Rate limits in headers"; for -1 and 0,
    learn.microsoft.com/answers/questions/5625878.
    """
    requests = _number(headers.get("x-ratelimit-limit-requests"))
    if requests and _fills_slowly(requests, headers):
        requests = None
    return _allowance(requests, _number(headers.get("x-ratelimit-limit-tokens")))


def parse_anthropic_allowance(headers: Mapping[str, str]) -> Allowance | None:
    """What `anthropic-ratelimit-*` says, or None when it says nothing that can be used.

    Tokens in and out have limits apart; `tokens` is the one of them that is the closest now.

    Args:
        headers: Response headers with lower-case lookup.

    Source: docs.claude.com, "Rate limits", section "Response headers".
    """
    name = "anthropic-ratelimit-{}-limit"
    requests, tokens = (_number(headers.get(name.format(one))) for one in ("requests", "tokens"))
    return _allowance(requests, tokens)


def _allowance(requests: float | None, tokens: float | None) -> Allowance | None:
    return Allowance(requests or None, tokens or None) if requests or tokens else None


def _fills_slowly(limit: float, headers: Mapping[str, str]) -> bool:
    """Whether the whole bucket takes longer to fill than one per minute may, by its duration.

    OpenAI gives durations ("6m0s", "20ms"). A bucket of 10,000 per day from which one was taken is
    full again after 8.64 s. Azure's whole seconds are the time to the end of a window and do not
    tell.
    """
    left = _number(headers.get("x-ratelimit-remaining-requests"))
    words = headers.get("x-ratelimit-reset-requests", "").strip()
    reset_s = duration_of(words) if len(words) <= _LONGEST_TEXT else None
    if left is None or reset_s is None:
        return False
    if reset_s > _SLOW_S:
        return True
    # What is said as a second or less may have been rounded up from anything.
    taken = limit - left
    return taken > 0 and reset_s > 1.0 and reset_s * limit > _SLOW_S * taken


def _number(text: str | None) -> float | None:
    # What is white space for `strip` is not always for `float`.
    words = "" if text is None or len(text) > _LONGEST_TEXT else text.strip()
    if not _NUMBER.fullmatch(words):
        return None
    number = float(words)
    return number if number <= _LARGEST else None
