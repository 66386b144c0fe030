"""Which cases wait for their first lease, and how many of them ask for one at a time.

A case becomes an episode only when the broker grants its first lease. Twenty thousand waiting cases need no
twenty thousand tickets: a few per model (and group) stand in the broker's queue, and each grant opens the next
case in line.
"""

from __future__ import annotations

from collections import deque

from pytest_ultrapar.engine.episode import Work

MOST_TICKETS = 64
"""Tickets in the queue per model and group: enough to fill 300 seats within five passes of the loop."""

TicketClass = tuple[str, str]
"""(model, group)."""


class Opener:
    """Waiting work by ticket class; pure, the engine does the asking."""

    def __init__(self, most_open: int) -> None:
        """Make an empty line.

        Args:
            most_open: At most so many episodes are open at once, a guard for pools without limits.
        """
        self._most_open = most_open
        self._waiting: dict[TicketClass, deque[Work]] = {}
        self._tickets: dict[TicketClass, int] = {}
        self._n_tickets = 0
        self._n_open = 0

    def add(self, work: Work) -> TicketClass:
        """Put work at the end of its line and say which line."""
        place = (work.model, work.group)
        self._waiting.setdefault(place, deque()).append(work)
        self._tickets.setdefault(place, 0)
        return place

    def tickets_wanted(self, place: TicketClass) -> int:
        """How many more tickets of a class should stand in the broker's queue now."""
        wanted = min(len(self._waiting.get(place, ())), MOST_TICKETS) - self._tickets.get(place, 0)
        room = self._most_open - self._n_open - self._n_tickets
        return max(0, min(wanted, room))

    def ticket_taken(self, place: TicketClass) -> None:
        """A ticket was put into the broker's queue."""
        self._tickets[place] += 1
        self._n_tickets += 1

    def ticket_back(self, place: TicketClass) -> None:
        """A ticket left the broker's queue, granted or not."""
        self._tickets[place] -= 1
        self._n_tickets -= 1

    def open_next(self, place: TicketClass) -> Work | None:
        """The case that a granted lease opens, or None when none waits any more."""
        line = self._waiting.get(place)
        if not line:
            return None
        self._n_open += 1
        return line.popleft()

    def closed(self) -> None:
        """An episode that `open_next` gave has ended."""
        self._n_open -= 1

    def refuse(self, place: TicketClass) -> list[Work]:
        """Empty a line whose model can no longer be served; its work is returned."""
        line = self._waiting.pop(place, None)
        return list(line or ())

    def places(self) -> list[TicketClass]:
        """All classes that have work waiting."""
        return [place for place, line in self._waiting.items() if line]
