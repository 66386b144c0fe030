"""Small drawings in the table cells of a page, as SVG that fits any width. All functions are pure.

Each row also shows the numbers of its drawing as text, so screen readers skip the drawing. A
tooltip shows the value under the pointer.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from pytest_ultrapar.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST_TICKS = 5
_HEIGHT = 100
"""The height of a strip, in units of its view box."""


class Scale(NamedTuple):
    """The values at the left and right ends of a column of drawings. They must be different."""

    low: float
    high: float

    def at(self, value: float) -> str:
        """Return the position of a value, as a percentage of the width."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"

    def ticks(self) -> list[float]:
        """Return about five round numbers between the two ends."""
        width = self.high - self.low
        power = 10.0 ** math.floor(math.log10(width / _MOST_TICKS))
        step = next(n * power for n in (1, 2, 5, 10) if width / (n * power) <= _MOST_TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [n * step for n in range(first, last + 1)]


def up_to(values: Iterable[float]) -> Scale:
    """Return a scale from 0 to the largest of these values."""
    return Scale(0.0, max(values, default=0.0) or 1.0)


def axis(title: str, scale: Scale) -> Markup:
    """Return the heading of a column of drawings: a title and an axis."""
    texts = [
        Markup('<text x="{}" y="12" text-anchor="{}">{:g}</text>').format(at, anchor, tick)
        for tick in scale.ticks()
        for at in [scale.at(tick)]
        for anchor in [{"0.00%": "start", "100.00%": "end"}.get(at, "middle")]
    ]
    return Markup('{}<svg class="drawn axis" aria-hidden="true">{}</svg>').format(
        title, Markup().join(texts)
    )


def bar(scale: Scale, value: float, tip: str, look: str = "") -> Markup:
    """Draw a bar from the left end to a value."""
    drawn = Markup('<rect class="{}" y="4" width="{}" height="12" rx="2"/>')
    return _drawn(tip, drawn.format(look, scale.at(value)))


def interval(scale: Scale, value: float, low: float | None, high: float | None, tip: str) -> Markup:
    """Draw a point, its interval if there is one, and a line at 0 if 0 is within the scale."""
    parts = [_line("zero", scale, 0.0, 0.0, ("0", "100%"))] if scale.low < 0 < scale.high else []
    if low is not None and high is not None:
        parts.append(_line("interval", scale, low, high))
    point = Markup('<circle cx="{}" cy="50%" r="4"/>').format(scale.at(value))
    return _drawn(tip, *parts, point)


def strip(
    values: Sequence[float],
    tips: Sequence[str],
    tip: str,
    slice_s: float,
    *,
    ticks: Iterable[int] = (),
    spans: Iterable[tuple[str, float, float]] = (),
) -> Markup:
    """Draw values over time, one for each slice.

    Args:
        values: The value of each slice, as a share of the height.
        tips: The tooltip of each slice, which is shown after `tip`.
        tip: The beginning of all tooltips, which names the subject of the strip.
        slice_s: The length of a slice, in seconds.
        ticks: The indexes of slices that get a mark.
        spans: Periods that get a mark below the strip: for each, a CSS class, and the start and the
            end in seconds.
    """
    n = len(values)
    heights = ((round(_HEIGHT * (1 - min(1.0, one))), 1) for one in values)
    steps = "".join(
        f"V{height}h{sum(width for _, width in own)}"
        for height, own in groupby(heights, key=lambda one: one[0])
    )
    marks = "".join(f"M{at}.5 0V{_HEIGHT}" for at in sorted(set(ticks)))
    area = Markup(
        '<svg viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="100%" height="100%">'
        '<path class="area" d="M0 {1}{2}V{1}z"/><path class="refused" d="{3}"/></svg>'
    ).format(n, _HEIGHT, steps, marks)
    time = Scale(0.0, n * slice_s)
    below = [
        _line(look, time, begin_s, min(end_s, time.high), ("100%", "100%"))
        for look, begin_s, end_s in spans
        if begin_s < time.high
    ]
    return _drawn(tip, area, *below, values="|".join(tips), step=f"{slice_s:.6g}")


def _line(
    look: str, scale: Scale, begin: float, end: float, at: tuple[str, str] = ("50%", "50%")
) -> Markup:
    return Markup('<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
        look, scale.at(begin), scale.at(end), *at
    )


def _drawn(tip: str, *parts: Markup, **data: str) -> Markup:
    """Put a drawing together from parts, which are our own markup; escape `tip` and `data`."""
    said = {name: visible(text) for name, text in {"tip": tip, **data}.items()}
    pairs = Markup().join(Markup(' data-{}="{}"').format(*one) for one in said.items())
    return Markup('<svg class="drawn" aria-hidden="true"{}>{}</svg>').format(
        pairs, Markup().join(parts)
    )
