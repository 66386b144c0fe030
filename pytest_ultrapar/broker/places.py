"""Which open cases come first: as many as a limit has seats, those that began first.

The others take what these leave idle. So the first conversations end early, and the last ones are
well under way by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.broker.throttles import Seats

SOON = 0.5
"""A seat is kept for so long, in times of the last answer: what comes later is not worth it."""
FREED = 0.1
"""Of the taken seats so many are free again by the time that a case comes back that thinks."""
SHARING = 6
"""So many cases without a place may be open for each seat that those with one leave idle, and as
many as there are seats: the last ones are under way then when the first are over."""


class Places:
    """Open cases on one limit: case n has a place as soon as n less its seats are over. Pure.

    In six virtual runs of 40 conversations, pauses a fifth of an answer, half of them had ended at
    62 % of the requests, and all in 0.83 of the time of first come, first served (79 %).

    Attributes:
        thinks: Those with a place that had an answer, and until when seats are kept for them.
        keep: Whether those without one wait for seats that are free.
    """

    def __init__(self, seats: Seats) -> None:
        self.thinks: dict[str, float] = {}
        self.keep = False
        self._seats = seats
        self._numbers: dict[str, int] = {}
        self._n_over = self._n_answers = self._n_thought = 0

    def begin(self, case_id: str) -> None:
        """An open case has a lease; it may be its first one here."""
        self._numbers.setdefault(case_id, self._n_over + len(self._numbers))

    def has_place(self, case_id: str) -> bool:
        """Whether an open case is one of the first."""
        return self._numbers[case_id] < self._n_over + self._seats.cap

    def answered(self, case_id: str, took_s: float, now_s: float) -> None:
        """A case had an answer, which took so long; with a place it will want its seat again."""
        self._n_answers += 1
        self._n_thought += len(self.thinks)
        if case_id in self._numbers and self.has_place(case_id):
            self.thinks[case_id] = now_s + SOON * took_s

    def end(self, case_id: str) -> None:
        """An open case is over, and does not think any more."""
        del self._numbers[case_id]
        self._n_over += 1

    def has_few(self) -> bool:
        """Whether so few cases are open that new ones are welcome."""
        n_more = SHARING * self._n_thought / max(1, self._n_answers)
        return len(self._numbers) < self._seats.cap + min(self._seats.cap, n_more)

    def keeps(self, now_s: float) -> bool:
        """Whether its free seats are kept for cases that think, until the first of `thinks`."""
        self.thinks = {one: until_s for one, until_s in self.thinks.items() if until_s > now_s}
        n_free = self._seats.cap - (1 - FREED) * self._seats.in_flight
        n_back = len(self.thinks) * (1 - self._n_over / max(1, self._n_answers))
        self.keep = 0 < n_free <= n_back
        return self.keep
