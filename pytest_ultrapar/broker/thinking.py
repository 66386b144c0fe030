"""Seats that cases which have begun will want again at once: no new case gets them.

A conversation that calls a tool leaves its seat for a moment. Given to a new case, the seat would
be taken when it comes back: all cases would be open at the same time, and all would end at the end.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.broker.throttles import Seats

SOON = 0.5
"""A seat is kept for so long, in times of an answer: what comes back later is not worth it."""
SHORT = 0.05
"""Nor are pauses shorter than this on average: so few cases are open beside those with a seat."""

TELLING = 8
"""So many pauses tell how long they are: who comes back first has thought least."""


class Thinkers:
    """Open cases that had an answer on one limit and have not asked again. Pure.

    So many cases are open that seats are not idle: as many as there are seats, and as many as think
    while those are taken. In 10 virtual runs of 40 conversations, pauses a fifth of an answer, half
    of them had ended at 64 % of the requests, not at 80 %, in 0.90 of the time; 300 took 1.016.

    Attributes:
        keep: Whether a new case waits for the seats that these want.
    """

    def __init__(self) -> None:
        self.keep = False
        self._since_s: OrderedDict[str, float] = OrderedDict()
        self._n_answers = self._n_gone = 0
        # Until one is known, they are taken to come back.
        self._n_back = 1
        self._took_s = self._back_s = 0.0

    def answered(self, case_id: str, took_s: float, now_s: float) -> None:
        """An open case had an answer, which took so long."""
        self._n_answers += 1
        self._took_s += took_s
        self._since_s[case_id] = now_s
        self._since_s.move_to_end(case_id)

    def over(self, case_id: str, back_s: float | None) -> None:
        """A case asks again at that time; None: it has ended, or thinks for too long."""
        since_s = self._since_s.pop(case_id, None)
        if since_s is None:
            return
        if back_s is None:
            self._n_gone += 1
        else:
            self._n_back += 1
            self._back_s += back_s - since_s

    def keep_until_s(self, seats: Seats, now_s: float) -> float:
        """Until when a limit's free seats are kept from new cases; -infinity: they are not."""
        soon_s = SOON * self._took_s / max(1, self._n_answers)
        while self._since_s:
            case_id, since_s = next(iter(self._since_s.items()))
            if since_s + soon_s > now_s:
                break
            self.over(case_id, None)
        else:
            return -math.inf
        n_back = len(self._since_s) * self._n_back / (self._n_back + self._n_gone)
        share = SOON * self._back_s / self._n_back / soon_s
        if self._n_back < TELLING:
            share = 0.0
        elif share < SHORT:
            return -math.inf
        # Those of others, who leave theirs in the time that one takes to come back.
        n_left = seats.in_flight * share
        return since_s + soon_s if seats.cap - seats.in_flight + n_left <= n_back else -math.inf
