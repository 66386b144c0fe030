"""A queue of the times at which the broker must check something again."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field


def _nothing(_: float) -> None:
    """Do nothing. `RetryBudget` uses this: the broker checks parked retries after every event."""


@dataclass(eq=False, slots=True)
class Timer:
    """Something to check once at a certain time, such as the end of a pause.

    Attributes:
        wake_s: The requested time; infinity if no time is requested.
        due: Called with the current time when the requested time has come.
    """

    wake_s: float = field(default=math.inf, init=False)
    due: Callable[[float], object] = field(default=_nothing, init=False)


class TimerQueue:
    """Timers in chronological order.

    If several times are requested for a timer, it is due only once: at the earliest of these times,
    unless it is moved.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = 0

    def ensure(self, timer: Timer, at_s: float) -> None:
        """Make sure that `timer` is due at `at_s` or earlier."""
        if at_s < timer.wake_s:
            self.move(timer, at_s)

    def move(self, timer: Timer, at_s: float) -> None:
        """Make `timer` due at `at_s` and at no other time."""
        timer.wake_s = at_s
        self._order += 1
        # Timers with equal times come in the order of the calls. An entry is void if its timer has
        # been moved to another time since then.
        heapq.heappush(self._heap, (at_s, self._order, timer))

    def pop_due(self, now_s: float) -> Timer | None:
        """Remove and return the earliest timer; None if no timer is due at `now_s`."""
        next_s = self.next_s()
        if next_s is None or next_s > now_s:
            return None
        timer = heapq.heappop(self._heap)[2]
        timer.wake_s = math.inf
        return timer

    def next_s(self) -> float | None:
        """The time of the earliest timer; None if there is no timer."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].wake_s:
            heapq.heappop(heap)
        return heap[0][0] if heap else None
