"""Queue the cases that are waiting for a first lease, and limit how many ask at the same time."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A waiting case. Its model and group determine its queue."""

    @property
    def model(self) -> str:
        """The model of the case."""

    @property
    def group(self) -> str:
        """The case's group in the assignment; empty if it is in no group."""


T = TypeVar("T", bound=Queued)
MOST_ASKING = 64
"""How many cases in a queue may ask for a lease at the same time. This is enough to fill 300 seats
in five iterations of the event loop."""
Line = tuple[str, str]
"""The model and the group of a queue's cases."""


class Admission(Generic[T]):
    """Queues of waiting cases, one for each model and group. The engine requests their leases."""

    def __init__(self, most_open: int) -> None:
        """Start with empty queues.

        Args:
            most_open: How many episodes may be open at once: a safeguard for pools without limits.
        """
        self._most_open = most_open
        self._waiting: dict[Line, deque[T]] = {}
        self._asking: dict[Line, int] = {}
        self._n_open = 0

    def add(self, work: T) -> Line:
        """Put a case at the end of its queue and return the queue's model and group."""
        line = (work.model, work.group)
        self._waiting.setdefault(line, deque()).append(work)
        self._asking.setdefault(line, 0)
        return line

    def next_to_ask(self, line: Line) -> T | None:
        """Return the next case that should ask for a lease.

        The result is None if no case is waiting in the queue, if enough of its cases are asking, or
        if enough episodes are open.
        """
        waiting = self._waiting.get(line)
        if not waiting or self._asking[line] >= MOST_ASKING:
            return None
        # Count each queue separately. Otherwise cases that must not start yet could block the cases
        # that they wait for, and one model could block another.
        if self._n_open + self._asking[line] >= self._most_open:
            return None
        self._asking[line] += 1
        return waiting.popleft()

    def opened(self, line: Line) -> None:
        """Count a case that got its lease: its episode is now open."""
        self._asking[line] -= 1
        self._n_open += 1

    def refused(self, line: Line) -> None:
        """Count a case that asked for a lease and did not get one."""
        self._asking[line] -= 1

    def closed(self) -> None:
        """Count the end of an episode."""
        self._n_open -= 1

    def lines(self) -> list[Line]:
        """The model and group of each queue that has waiting cases."""
        return [line for line, waiting in self._waiting.items() if waiting]
