"""The way back to a limit that was once too much: fast at first, flat near it, then beyond."""

from __future__ import annotations

SPAN_S = 15.0
"""At least so long from a cut to the next try beyond the limit."""
REQUESTS_PER_TRY = 80
"""At least so many requests from a cut to the next try: a try costs one or two refusals, so they
stay below 2.5 % of all requests however small the limit is."""
LONGEST_SPAN_S = 300.0


class Curve:
    """Where a limit may be, t seconds after it was cut from `target` to `low`.

    Up to `span_s` it follows CUBIC's concave part, target - (target - low) * (1 - t/span)^3: after
    half the span seven eighths of the way are done. From then on it stays at `target`; what lies
    beyond is for whoever searches.

    Source: RFC 9438, section 4.2 (CUBIC), with K given and not derived.
    """

    __slots__ = ("cut_s", "low", "span_s", "target")

    def __init__(self, low: float, target: float, cut_s: float, span_s: float) -> None:
        self.low = low
        self.target = target
        self.cut_s = cut_s
        self.span_s = span_s

    def at(self, now_s: float) -> float:
        """The value at `now_s`; `target` after the span."""
        left = 1.0 - (now_s - self.cut_s) / self.span_s
        if left <= 0.0:
            return self.target
        return self.target - (self.target - self.low) * min(left, 1.0) ** 3

    def is_over(self, now_s: float) -> bool:
        """Whether the span has passed, and a try beyond the target is due."""
        return now_s - self.cut_s >= self.span_s


def span_s(requests_per_s: float) -> float:
    """Seconds from a cut to the next try, at so many requests per second."""
    wanted_s = REQUESTS_PER_TRY / max(requests_per_s, 1e-9)
    return min(LONGEST_SPAN_S, max(SPAN_S, wanted_s))
