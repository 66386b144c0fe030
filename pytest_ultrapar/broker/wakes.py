"""What the broker looks at later: wakes in order of time, and the ends of leases."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Wake:
    """Something to be looked at once, at a time: a limit whose rate is ready, a pause's end.

    Attributes:
        wake_s: The time asked for; infinity when none is.
        due: What is to be done when its time has come, which it is told.
    """

    def __init__(self) -> None:
        self.wake_s = math.inf
        self.due: Callable[[float], object] = _nothing


def _nothing(_: float) -> None:
    """The broker looks after every event at those who wait for a retry."""


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


_Worker = TypeVar("_Worker")


class LeaseTerms(Wake, Generic[_Worker]):
    """The leases of one lane that are out, oldest first; wakes when the oldest may be over.

    All of a lane have the same term, so that their order is that of their ends and a lease costs
    one entry in a dict; it wakes once per term, not once per lease.
    """

    def __init__(self) -> None:
        super().__init__()
        self._out: dict[int, tuple[_Worker, float]] = {}

    def begin(self, lease_id: int, worker: _Worker, end_s: float) -> None:
        """A lease was granted that ends at `end_s`, which is no earlier than that of the last."""
        self._out[lease_id] = worker, end_s

    def end(self, lease_id: int) -> None:
        """A lease came back."""
        del self._out[lease_id]

    def pop_over(self, now_s: float) -> Iterator[tuple[int, _Worker]]:
        """Leases whose term has ended, which are forgotten here."""
        while self._out:
            lease_id, (worker, end_s) = next(iter(self._out.items()))
            if end_s > now_s:
                return
            del self._out[lease_id]
            yield lease_id, worker

    def next_end_s(self) -> float | None:
        """When the oldest lease ends by itself; None when none is out."""
        for _, end_s in self._out.values():
            return end_s
        return None
