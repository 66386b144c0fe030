"""Compare the speed of this host's clock with the speed of the server's clock, without I/O.

A host spaces its requests by its own clock. A host whose clock runs too fast would send more than
its share of a rate limit, so it gets no shares of rate limits. But a clock that a time service
steps or slews must not be treated as wrong. If the clocks move apart by more than `STEP_S` between
two calls, this is treated as a step, and the comparison starts again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from pytest_ultrapar.broker.shares import DRIFT

STEP_S = 0.5
"""If a clock is wrong by more than this many seconds, a time service makes the clock jump (a step).
The service corrects smaller errors gradually (slewing)."""
STRETCH_S = 30.0
"""How many seconds to observe the clocks before they are compared. After this time, the difference
that `DRIFT` allows is larger than `STEP_S` plus the uncertainty that a slow call causes."""
_TICK_S = 0.001
"""The server reports its time in whole milliseconds."""


class _Look(NamedTuple):
    begun_s: float
    ended_s: float
    server_s: float


class ClockDrift:
    """Compares this host's clock with the server's over the last `STRETCH_S`.

    Attributes:
        trouble: A sentence about the difference in speed, if this difference certainly exceeds
            `DRIFT`; otherwise empty.
    """

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()
        self.trouble = ""

    def record(self, begun_s: float, ended_s: float, server_s: float) -> None:
        """Record the server's time, which was read between `begun_s` and `ended_s` on this host."""
        look = _Look(begun_s, ended_s, server_s)
        if self._looks and _apart_s(self._looks[-1], look) > STEP_S:
            self._looks.clear()
        self._looks.append(look)
        # Find the newest look that is old enough, and drop all earlier ones.
        while len(self._looks) > 1 and begun_s - self._looks[1].ended_s >= STRETCH_S:
            self._looks.popleft()
        first = self._looks[0]
        self.trouble = ""
        if begun_s - first.ended_s >= STRETCH_S:
            self.trouble = _trouble(first, look)


def _between(one: _Look, other: _Look) -> tuple[float, float, float]:
    """Return how much time passed on this host (minimum, maximum) and on the server."""
    least_s, most_s = other.begun_s - one.ended_s, other.ended_s - one.begun_s
    return least_s, most_s, other.server_s - one.server_s


def _apart_s(one: _Look, other: _Look) -> float:
    least_s, most_s, server_s = _between(one, other)
    return max(least_s - server_s, server_s - most_s)


def _trouble(first: _Look, last: _Look) -> str:
    least_s, most_s, server_s = _between(first, last)
    if least_s > DRIFT * (server_s + _TICK_S):
        by, word = least_s / max(server_s, _TICK_S) - 1, "faster"
    elif server_s - _TICK_S > DRIFT * most_s:
        by, word = 1 - most_s / server_s, "slower"
    else:
        return ""
    return (
        f"this host's clock runs {by:.1%} {word} than the cluster server's, so the host gets no "
        f"share of per-second and per-minute limits (the clocks must agree within {DRIFT - 1:.0%})"
    )
