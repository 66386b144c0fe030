"""The cases that wait for their first lease, and how many of them ask for one at a time."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A waiting case; model and group decide its line."""

    @property
    def model(self) -> str:
        """The model of the case."""

    @property
    def group(self) -> str:
        """The case's group in the assignment; empty without a group."""


T = TypeVar("T", bound=Queued)
MOST_ASKING = 64
"""Cases per line that ask at the same time: enough to fill 300 seats in five passes of the loop."""
Line = tuple[str, str]
"""(model, group)."""


class Admission(Generic[T]):
    """Waiting cases by line; pure: the engine asks for the leases."""

    def __init__(self, most_open: int) -> None:
        """Start with empty lines.

        Args:
            most_open: The most episodes open at the same time, a guard for pools without limits.
        """
        self._most_open = most_open
        self._waiting: dict[Line, deque[T]] = {}
        self._asking: dict[Line, int] = {}
        self._n_open = 0

    def add(self, work: T) -> Line:
        """Put a case at the end of its line and return the line."""
        line = (work.model, work.group)
        self._waiting.setdefault(line, deque()).append(work)
        self._asking.setdefault(line, 0)
        return line

    def next_to_ask(self, line: Line) -> T | None:
        """The next case of a line that should ask for its first lease; None if enough ask."""
        waiting = self._waiting.get(line)
        if not waiting or self._asking[line] >= MOST_ASKING:
            return None
        # Count each line separately. Cases that may not start yet must not block the cases that
        # they wait for, and one model must not block another.
        if self._n_open + self._asking[line] >= self._most_open:
            return None
        self._asking[line] += 1
        return waiting.popleft()

    def opened(self, line: Line) -> None:
        """Count a case that got its lease: it is an open episode now."""
        self._asking[line] -= 1
        self._n_open += 1

    def refused(self, line: Line) -> None:
        """Count a case that asked for a lease and will not get one."""
        self._asking[line] -= 1

    def closed(self) -> None:
        """Count the end of an episode."""
        self._n_open -= 1

    def lines(self) -> list[Line]:
        """All lines that have waiting cases."""
        return [line for line, waiting in self._waiting.items() if waiting]
