"""Read a server's advice on retries: how long to wait, and whether to retry at all."""

from __future__ import annotations

import email.utils
import re
from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_S = 7 * 86_400.0
"""Waits are cut to one week, because a longer wait only means that the server does not come back
during the run. The lane's health determines whether the lane waits or is removed."""
_YEAR_S = 365 * 86_400.0
"""The longest plausible wait: a larger number is a timestamp, or invalid."""
_MILLIS_FROM = 1e11
"""Unix timestamps in seconds are smaller than this; timestamps in milliseconds are larger."""
_UNIT_S = {"day": 86_400.0, "hour": 3600.0, "min": 60.0, "minute": 60.0, "sec": 1.0, "second": 1.0}
_UNIT_S |= {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "millisecond": 1e-3}
_UNIT_S |= {"us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_UNITS = "|".join(sorted(_UNIT_S, key=len, reverse=True))
_TERM = re.compile(rf"({_NUMBER.pattern}) ?({_UNITS})s?(?![a-zµ])")
_DURATION = re.compile(rf"{_TERM.pattern}(?:(?:,? and|,)? ?{_TERM.pattern})*")
_STATED = re.compile(
    r"\b(?:try again|retry|wait)(?: your request)?(?: again)?(?: in| after| for)?(?: about)? "
    rf"({_DURATION.pattern})"
)


def parse_retry_after(headers: Mapping[str, str], *, epoch_s: float) -> float | None:
    """Return how many seconds the response's headers ask clients to wait, or None.

    `retry-after-ms` takes precedence over `retry-after` with seconds or a duration (`1m30s`), and
    both take precedence over an HTTP date. A number that would be a wait of more than a year is
    read as a Unix timestamp, in seconds or milliseconds. If a header is repeated, the longest wait
    counts, or the first date. The result is None for zero, for times in the past or more than a
    year ahead, and for negative, infinite, non-ASCII and unreadable values. The caller then uses
    its own back-off.

    Args:
        headers: Response headers, by lower-case name; repeated headers are joined with commas.
        epoch_s: The current wall time, in seconds since the epoch; used only for dates and
            timestamps.

    Returns:
        A wait above 0 and not longer than `LONGEST_S`, or None.

    Source: RFC 9110, section 10.2.3; the precedence is the same as in the official OpenAI client.
    """
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        asked = [_wait_s(part, unit_s, epoch_s) for part in headers.get(name, "").split(",")]
        if longest_s := max(filter(None, asked), default=None):
            return longest_s
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return bounded(moment.timestamp() - epoch_s)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _wait_s(text: str, unit_s: float, epoch_s: float) -> float | None:
    asked = text.strip().lower()
    if not _NUMBER.fullmatch(asked):
        return bounded(duration_of(asked) or 0.0)
    seconds = float(asked) * unit_s
    if seconds > _YEAR_S:
        seconds = (seconds / 1000 if seconds > _MILLIS_FROM else seconds) - epoch_s
    return bounded(seconds)


def parse_should_retry(headers: Mapping[str, str]) -> bool | None:
    """The value of `x-should-retry`; None if it is neither `true` nor `false`."""
    value = headers.get("x-should-retry", "").strip().lower()
    return {"true": True, "false": False}.get(value)


def duration_of(text: str) -> float | None:
    """The seconds in a duration such as `6m0s`, `20ms` or `1 minute`; None for any other text."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(count) * _UNIT_S[unit] for count, unit in _TERM.findall(text))


def stated_s(message: str) -> float | None:
    """Return the wait, in seconds, in a lower-case message such as `retry in 1.3s`, or None."""
    found = _STATED.search(message)
    return bounded(duration_of(found[1]) or 0.0) if found else None


def bounded(seconds: float) -> float | None:
    """Limit a wait to `LONGEST_S`; None if the wait is 0, negative, or longer than a year."""
    return min(seconds, LONGEST_S) if 0 < seconds <= _YEAR_S else None
