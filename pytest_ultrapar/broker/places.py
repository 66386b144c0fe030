"""The order in which open cases are served. A limit has one place for each of its seats.

The cases that began first have the places, and they are served first. The other cases use the seats
that these cases leave idle. So the first conversations end early, and by then the last ones have
made good progress. In the code, a case *thinks* between an answer and its next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.broker.throttles import Seats

SOON = 0.5
"""How long a seat is kept for a case that is between two requests, as a fraction of the time that
its last answer took."""
FREED = 0.1
"""The fraction of the taken seats that is expected to become free before a case that is between two
requests sends its next one."""
SHARING = 6
"""How many cases without a place may be open for each seat that cases with a place leave idle.
There are never more of them than the limit has seats. In this way, the last cases are already in
progress when the first ones end.
"""


class Places:
    """The open cases on one limit. With s seats, case n has a place once n - s cases have ended.

    This class does no I/O. It was compared with "first come, first served" in six simulated runs
    with 40 conversations each. The pauses between an answer and the next request were a fifth as
    long as the answers took. With places, half of the conversations had ended when 62 % of the
    requests had been answered; with "first come, first served", it was 80 %. The runs with places
    took 0.83 times as long as the others.

    Attributes:
        thinks: For each case that has a place and is between two requests: the time until which a
            seat is kept for it.
        keep: Whether free seats are being kept, so that cases without a place have to wait.
    """

    def __init__(self, seats: Seats) -> None:
        self.thinks: dict[str, float] = {}
        self.keep = False
        self._seats = seats
        self._numbers: dict[str, int] = {}
        self._n_over = self._n_answers = self._n_thought = 0

    def begin(self, case_id: str) -> None:
        """Record that an open case got a lease on this limit (its first one or a later one)."""
        self._numbers.setdefault(case_id, self._n_over + len(self._numbers))

    def has_place(self, case_id: str) -> bool:
        """Whether an open case has a place."""
        return self._numbers[case_id] < self._n_over + self._seats.cap

    def answered(self, case_id: str, took_s: float, now_s: float) -> None:
        """Record an answer that took `took_s`. If the case has a place, a seat is kept for it."""
        self._n_answers += 1
        self._n_thought += len(self.thinks)
        if case_id in self._numbers and self.has_place(case_id):
            self.thinks[case_id] = now_s + SOON * took_s

    def end(self, case_id: str) -> None:
        """Record that an open case has ended."""
        del self._numbers[case_id]
        self._n_over += 1

    def has_few(self) -> bool:
        """Whether few enough cases are open for new ones to begin."""
        n_more = SHARING * self._n_thought / max(1, self._n_answers)
        return len(self._numbers) < self._seats.cap + min(self._seats.cap, n_more)

    def keeps(self, now_s: float) -> bool:
        """Whether free seats are kept for the cases in `thinks`.

        The answer may change at the earliest time in `thinks`.
        """
        self.thinks = {one: until_s for one, until_s in self.thinks.items() if until_s > now_s}
        n_free = self._seats.cap - (1 - FREED) * self._seats.in_flight
        n_back = len(self.thinks) * (1 - self._n_over / max(1, self._n_answers))
        self.keep = 0 < n_free <= n_back
        return self.keep
