"""Which cases wait for their first lease, and how many of them ask for one at a time."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class HasLine(Protocol):
    """What waits: it says in which line."""

    @property
    def model(self) -> str:
        """Its model."""

    @property
    def group(self) -> str:
        """Its group in the assignment, empty for none."""


T = TypeVar("T", bound=HasLine)
MOST_ASKING = 64
"""Cases per line that ask at a time: enough to fill 300 seats within five passes of the loop."""
Line = tuple[str, str]
"""(model, group)."""


class Admission(Generic[T]):
    """Waiting cases by line; pure, the engine does the asking."""

    def __init__(self, most_open: int) -> None:
        """Make empty lines.

        Args:
            most_open: At most so many episodes are open at once, a guard for pools without limits.
        """
        self._most_open = most_open
        self._waiting: dict[Line, deque[T]] = {}
        self._asking: dict[Line, int] = {}
        self._n_open = 0

    def add(self, work: T) -> Line:
        """Put a case at the end of its line and say which line."""
        line = (work.model, work.group)
        self._waiting.setdefault(line, deque()).append(work)
        self._asking.setdefault(line, 0)
        return line

    def next_to_ask(self, line: Line) -> T | None:
        """A case of a line that should ask for its first lease now, or None when enough do."""
        waiting = self._waiting.get(line)
        if not waiting or self._asking[line] >= MOST_ASKING:
            return None
        # Each line by itself: cases that may not start yet must not keep those from asking that
        # they wait for, nor one model's those of another.
        if self._n_open + self._asking[line] >= self._most_open:
            return None
        self._asking[line] += 1
        return waiting.popleft()

    def opened(self, line: Line) -> None:
        """A case that was asking got its lease: it is an episode now."""
        self._asking[line] -= 1
        self._n_open += 1

    def refused(self, line: Line) -> None:
        """A case that was asking will get no lease."""
        self._asking[line] -= 1

    def closed(self) -> None:
        """An episode has ended."""
        self._n_open -= 1

    def lines(self) -> list[Line]:
        """All lines in which cases wait."""
        return [line for line, waiting in self._waiting.items() if waiting]
