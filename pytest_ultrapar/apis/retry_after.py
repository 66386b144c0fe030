"""What the headers of an answer say of sending again: after how long, and whether at all."""

from __future__ import annotations

import email.utils
import math
from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_S = 7 * 86_400.0
"""What is asked for beyond a week says only that the server will not be back for us. Whether a lane
waits for what is asked, or is out, the lane's health decides."""


def parse_retry_after(headers: Mapping[str, str], *, epoch_s: float) -> float | None:
    """Seconds to wait as the response's headers ask, or None when they ask for nothing usable.

    `retry-after-ms` goes before `retry-after` as a number of seconds, that before an HTTP date.
    Zero, past dates, negative, infinite, non-ASCII and unreadable values are None: the caller then
    backs off by its own rule. A header that comes several times asks for the longest of its
    numbers, or for the first of its dates.

    Args:
        headers: Response headers with lower-case lookup; repeated ones joined by commas.
        epoch_s: Wall time, seconds since the epoch; used for dates only.

    Returns:
        More than 0 and at most `LONGEST_S`.

    Source: RFC 9110, section 10.2.3; the order is the official OpenAI client's.
    """
    millis = _numbers(headers.get("retry-after-ms"))
    if millis and max(millis) > 0:
        return bounded(max(millis) / 1000)
    value = headers.get("retry-after")
    seconds = _numbers(value)
    if seconds:
        return bounded(max(seconds))
    if value is None or not value.isascii():
        return None
    try:
        moment = email.utils.parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return bounded(moment.timestamp() - epoch_s)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def parse_should_retry(headers: Mapping[str, str]) -> bool | None:
    """What `x-should-retry` says, or None when it says neither `true` nor `false`."""
    value = headers.get("x-should-retry", "").strip().lower()
    return {"true": True, "false": False}.get(value)


def _numbers(value: str | None) -> list[float]:
    if value is None or not value.isascii():
        return []
    return [number for part in value.split(",") if (number := number_of(part)) is not None]


def number_of(text: str) -> float | None:
    """The number in a text; None where there is none that could be a wait."""
    # Python's float accepts "inf", "nan", "1e999" and underscores.
    if "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def bounded(seconds: float) -> float | None:
    """A wait of at most `LONGEST_S`; None where there is nothing to wait for."""
    return min(seconds, LONGEST_S) if seconds > 0 else None
