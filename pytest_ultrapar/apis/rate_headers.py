"""What the headers `x-ratelimit-*` say of the limits that a provider holds us to."""

from __future__ import annotations

import email.utils
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.outcome import Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping

_Bucket = tuple[float | None, float | None, float | None]
"""Limit, what is left, seconds to the reset."""
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TERM = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")
_DURATION = re.compile(rf"(?:{_TERM.pattern})+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LONGEST_TEXT = 40
_LARGEST = 1e12
_LONGEST_S = 31 * 86_400.0
_SLOW_S = 120.0
"""Twice a minute: a server's sums and roundings make no other limit of one per minute."""


def parse_allowance(headers: Mapping[str, str]) -> Allowance | None:
    """What `x-ratelimit-*` says, or None when it says nothing that can be used.

    OpenAI gives durations ("6m0s", "20ms"), Azure whole seconds, and -1 and 0 where it does not
    say; both count per minute. OpenAI's lower tiers and some gateways count requests per day or
    some hours under the same names, and nothing but the time until all is there again shows it:
    then the limit per minute is not known, what is left and the reset stand. Whatever is negative,
    unreadable, not finite or there twice is not known, and so is all about requests (or tokens)
    beside a limit of 0 or less.

    Args:
        headers: Response headers with lower-case lookup.

    Source: OpenAI's guide on rate limits, "Rate limits in headers"; for -1 and 0,
    learn.microsoft.com/answers/questions/5625878.
    """
    requests = _bucket(headers, "requests")
    if _fills_slowly(requests, headers.get("x-ratelimit-reset-requests")):
        requests = (None, *requests[1:])
    found = (*requests, *_bucket(headers, "tokens"))
    return None if all(one is None for one in found) else Allowance(*found)


def parse_anthropic_allowance(headers: Mapping[str, str]) -> Allowance | None:
    """What `anthropic-ratelimit-*` says, or None when it says nothing that can be used.

    Resets are moments, and seconds to them are counted from the answer's own `date`, so that no
    difference of clocks counts. Tokens in and out have limits apart; `tokens` is the one of them
    that is the closest now.

    Args:
        headers: Response headers with lower-case lookup.

    Source: docs.claude.com, "Rate limits", section "Response headers".
    """
    found: list[float | None] = []
    for what in ("requests", "tokens"):
        name = f"anthropic-ratelimit-{what}-"
        limit = _number(headers.get(f"{name}limit")) or None
        left = _number(headers.get(f"{name}remaining"))
        reset_s = None
        if limit is not None or left is not None:
            reset_s = _seconds_until(headers.get(f"{name}reset"), headers.get("date"))
        found += (limit, left, reset_s)
    return None if all(one is None for one in found) else Allowance(*found)


def _seconds_until(moment: str | None, now: str | None) -> float | None:
    if moment is None or now is None or max(len(moment), len(now)) > _LONGEST_TEXT:
        return None
    try:
        until, since = datetime.fromisoformat(moment), email.utils.parsedate_to_datetime(now)
        seconds = (_with_zone(until) - _with_zone(since)).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    # It is said to the second, and answers take their time.
    return min(max(seconds, 0.0), _LONGEST_S)


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _bucket(headers: Mapping[str, str], what: str) -> _Bucket:
    limit_text = headers.get(f"x-ratelimit-limit-{what}")
    limit = _number(limit_text)
    left = _number(headers.get(f"x-ratelimit-remaining-{what}"))
    if limit_text is not None and not limit:
        return None, None, None
    if limit is None and left is None:
        # Without either a reset says nothing: Azure sends 0 beside -1.
        return None, None, None
    return limit, left, _seconds(headers.get(f"x-ratelimit-reset-{what}"))


def _fills_slowly(requests: _Bucket, reset_text: str | None) -> bool:
    """Whether the whole bucket takes longer to fill than one per minute may, by its duration.

    A bucket of 10,000 per day from which one was taken is full again after 8.64 s. Azure's whole
    seconds are the time to the end of a window and do not tell.
    """
    limit, left, reset_s = requests
    if limit is None or left is None or reset_s is None or _number(reset_text) is not None:
        return False
    if reset_s > _SLOW_S:
        return True
    # What is said as a second or less may have been rounded up from anything.
    taken = limit - left
    return taken > 0 and reset_s > 1.0 and reset_s * limit > _SLOW_S * taken


def _seconds(text: str | None) -> float | None:
    number = _number(text)
    if number is not None or text is None:
        return number if number is None or number <= _LONGEST_S else None
    words = text.strip()
    if len(words) > _LONGEST_TEXT or not _DURATION.fullmatch(words):
        return None
    seconds = sum(float(count) * _UNIT_S[unit] for count, unit in _TERM.findall(words))
    return seconds if seconds <= _LONGEST_S else None


def _number(text: str | None) -> float | None:
    if text is None or len(text) > _LONGEST_TEXT:
        return None
    # What is white space for `strip` is not always for `float`.
    words = text.strip()
    if not _NUMBER.fullmatch(words):
        return None
    number = float(words)
    return number if math.isfinite(number) and number <= _LARGEST else None
