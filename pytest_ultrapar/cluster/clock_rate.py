"""Whether this host's clock goes as fast as the server's; pure.

A paced share is spaced by its host's clock. One that goes faster than the others sends more than
its share, so such a host gets none. Clocks that are set, or slewed by a time service, must not seem
to go wrong: what differs by more than `STEP_S` from one call to the next is a step, and after one
the comparison begins anew.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from pytest_ultrapar.broker.shares import DRIFT

STEP_S = 0.5
"""A time service sets what is wrong by more, and slews what is less."""
STRETCH_S = 30.0
"""Compared over so long: `STEP_S` is less of that than `DRIFT` allows, and so is what a slow call
leaves open."""
_TICK_S = 0.001
"""The server tells whole milliseconds."""


class _Look(NamedTuple):
    begun_s: float
    ended_s: float
    server_s: float


class ClockRate:
    """This host's clock beside the server's, over the last `STRETCH_S`.

    Attributes:
        trouble: By how much they surely differ where that is more than `DRIFT`, a sentence; or
            empty.
    """

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()
        self.trouble = ""

    def look(self, begun_s: float, ended_s: float, server_s: float) -> None:
        """Note what the server's clock said between two moments of this host's."""
        look = _Look(begun_s, ended_s, server_s)
        if self._looks and _apart_s(self._looks[-1], look) > STEP_S:
            self._looks.clear()
        self._looks.append(look)
        # The first that is left is the last that is old enough.
        while len(self._looks) > 1 and begun_s - self._looks[1].ended_s >= STRETCH_S:
            self._looks.popleft()
        first = self._looks[0]
        self.trouble = ""
        if begun_s - first.ended_s >= STRETCH_S:
            self.trouble = _trouble(first, look)


def _between(one: _Look, other: _Look) -> tuple[float, float, float]:
    """What went by at least and at most here, and on the server."""
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
        f"this host's clock runs {by:.1%} {word} than the cluster server's; limits per second or "
        f"minute are shared only between clocks that agree within {DRIFT - 1:.0%}"
    )
