"""How long a server asks us to stay away."""

from __future__ import annotations

import email.utils
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_S = 120.0
"""A server that asks for more is not waited for longer than this.

Source: the official OpenAI client's bound.
"""


def parse_retry_after(headers: Mapping[str, str], *, epoch_s: float) -> float | None:
    """Seconds to wait as the response's headers ask, or None when they ask for nothing usable.

    `retry-after-ms` goes before `retry-after`, which is a number of seconds or an HTTP date. Zero,
    past dates, negative, infinite, non-ASCII and unreadable values are None: the caller then backs
    off by its own rule.

    Args:
        headers: Response headers with lower-case lookup.
        epoch_s: Wall time, seconds since the epoch; used for dates only.

    Source: RFC 9110, section 10.2.3.
    """
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return _positive(millis / 1000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return _positive(seconds)
    if value is None or not value.isascii():
        return None
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return _positive(moment.timestamp() - epoch_s)


def _number(value: str | None) -> float | None:
    # Python's float accepts "inf", "nan", "1e999", underscores and non-ASCII digits: none is a
    # wait.
    if value is None or not value.isascii() or "_" in value:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _positive(seconds: float) -> float | None:
    return min(seconds, LONGEST_S) if seconds > 0 else None
