"""What the broker looks at later: wakes in order of time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field


def _nothing(_: float) -> None:
    """The broker looks after every event at those who wait for a retry."""


@dataclass(eq=False, slots=True)
class Wake:
    """Something to be looked at once, at a time: a limit whose rate is ready, a pause's end.

    Attributes:
        wake_s: The time asked for; infinity when none is.
        due: What is to be done when its time has come, which it is told.
    """

    wake_s: float = field(default=math.inf, init=False)
    due: Callable[[float], object] = field(default=_nothing, init=False)


class WakeQueue:
    """Wakes in order of time; each comes up once, at the earliest time asked for."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Wake]] = []
        self._order = 0

    def ensure(self, wake: Wake, at_s: float) -> None:
        """See to it that `wake` comes up at `at_s` or earlier."""
        if at_s < wake.wake_s:
            self.move(wake, at_s)

    def move(self, wake: Wake, at_s: float) -> None:
        """Let `wake` come up at `at_s` and at no other time."""
        wake.wake_s = at_s
        self._order += 1
        # The order makes ties first come, first served; an entry whose time is no longer its wake's
        # is dead.
        heapq.heappush(self._heap, (at_s, self._order, wake))

    def pop_due(self, now_s: float) -> Wake | None:
        """The earliest wake that is due at `now_s`, or None."""
        next_s = self.next_s()
        if next_s is None or next_s > now_s:
            return None
        wake = heapq.heappop(self._heap)[2]
        wake.wake_s = math.inf
        return wake

    def next_s(self) -> float | None:
        """When the earliest wake is due, or None when there is none."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].wake_s:
            heapq.heappop(heap)
        return heap[0][0] if heap else None
