"""Numbers as people read them in a terminal."""

from __future__ import annotations

_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S


def counted(n: int, noun: str) -> str:
    """`1 case`, `2 cases`, `1,200 requests`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def duration(seconds: float) -> str:
    """Three digits or so: `0.21 s`, `12.3 s`, `4 min 05 s`, `3 h 12 min`, `2 d 04 h`."""
    if seconds < 10:  # noqa: PLR2004 - two digits after the point below it, one above
        return f"{seconds:.2f} s"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 2 * _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    if whole < 2 * _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S:02d} h"


def rate(per_s: float) -> str:
    """Cases per second, or per minute or hour where that says more: `1,332/s`, `7.5/min`."""
    for factor, unit in ((1, "s"), (_MINUTE_S, "min")):
        if per_s * factor >= 1:
            return f"{_few_digits(per_s * factor)}/{unit}"
    return f"{_few_digits(per_s * _HOUR_S)}/h"


def times(factor: float) -> str:
    """A speed-up: `297x`, `3.4x`."""
    return f"{_few_digits(factor)}x"


def percent(share: float) -> str:
    """A share with one digit after the point: `61.5 %`."""
    return f"{share * 100:.1f} %"


def _few_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"  # noqa: PLR2004 - three digits
