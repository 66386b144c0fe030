"""Where more requests at once bring no more answers: for servers that queue and never refuse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.adaptive.observation import Observation

LEAST_GAIN = 1.3
"""Twice the seats must bring so much more, else the end is reached. Source: RELIABILITY 2.2."""
UP, UP_GAIN = 1.25, 1.12
"""A try upwards, and what it must bring: half of what it would where nothing queues."""
DOWN, DOWN_LOSS = 0.8, 0.93
"""A try downwards, and what it must keep."""
FOR_DOUBLING, FOR_TRY = 20, 50
"""Answers that tell how long one takes with so many at once. The mean of their logarithms is good
to a tenth, enough to tell twice as many answers from as many; a try asks for less and knows more.
"""
REST_S = 15.0
_FULL = 0.95
_ANSWERS = 2.0
_SAME = 1.2
"""While a level is learnt the seats may grow by so much."""

_Try = Literal["rest", "up", "down"]


@dataclass(slots=True)
class _Level:
    """How long answers take with so many at once, as far as is known."""

    seats: float
    since_s: float
    enough: float
    n: int = 0
    log_sum: float = 0.0

    def add(self, took_s: float) -> None:
        self.n += 1
        self.log_sum += math.log(max(took_s, 1e-6))

    def is_known(self, now_s: float) -> bool:
        # Short answers come back first: what is known too soon is too good.
        return self.n >= self.enough and now_s - self.since_s >= _ANSWERS * self.answer_s

    @property
    def answer_s(self) -> float:
        return math.exp(self.log_sum / self.n)

    @property
    def per_s(self) -> float:
        """Answers per second, by Little's law; comparable with that of another level."""
        return self.seats / self.answer_s


class PlateauSearch:
    """Compares how many answers per second different numbers of seats bring. Pure.

    While the seats grow without a refusal it looks at each doubling whether that paid. Once one did
    not, it holds the seats itself: rests, tries a quarter more and a fifth less, and keeps what
    pays.

    Attributes:
        seats: What it holds, once it does; None before.
    """

    __slots__ = ("_base", "_trial", "_trying", "_turn", "seats")

    def __init__(self) -> None:
        self.seats: float | None = None
        self._base: _Level | None = None
        self._trial: _Level | None = None
        self._trying: _Try = "rest"
        self._turn = 0

    def grows(self, seen: Observation, seats: int) -> bool:
        """Whether the seats may grow further, while nothing was refused yet.

        Args:
            seen: A success with the seats in use.
            seats: How many there are.
        """
        if self._base is None:
            self._base = _Level(seats, seen.now_s, FOR_DOUBLING)
        if not self._base.is_known(seen.now_s):
            self._learn(self._base, seen)
            return seats < _SAME * self._base.seats
        if seats < 2 * self._base.seats:
            return True
        if self._trial is None:
            self._trial = _Level(seats, seen.now_s, FOR_DOUBLING)
        self._learn(self._trial, seen)
        if not self._trial.is_known(seen.now_s):
            return False
        if self._trial.per_s >= LEAST_GAIN * self._base.per_s:
            self._base, self._trial = self._trial, None
            return True
        self._begin(self._base.seats * math.sqrt(2.0), seen.now_s)
        return False

    def served(self, seen: Observation) -> None:
        """Take a success into account once the plateau is reached."""
        assert self.seats is not None
        assert self._base is not None
        if self._trial is None:
            self._learn(self._base, seen)
            if self._base.is_known(seen.now_s) and seen.now_s - self._base.since_s >= REST_S:
                self._try(seen.now_s)
            return
        self._learn(self._trial, seen)
        if not self._trial.is_known(seen.now_s):
            return
        least = UP_GAIN if self._trying == "up" else DOWN_LOSS
        if self._trial.per_s >= least * self._base.per_s:
            # What pays is tried again at once: after a step the way is long.
            self._base = self._trial
            self.seats = self._base.seats
            self._try(seen.now_s)
        else:
            self._begin(self._base.seats, seen.now_s)
            self._turn += 1

    def _begin(self, seats: float, now_s: float) -> None:
        self.seats = max(1.0, seats)
        self._base = _Level(self.seats, now_s, max(FOR_TRY, self.seats))
        self._trial = None
        self._trying = "rest"

    def _try(self, now_s: float) -> None:
        assert self._base is not None
        self._trying = "down" if self._turn % 2 == 0 else "up"
        factor = DOWN if self._trying == "down" else UP
        wanted = self._base.seats * factor
        seats = math.floor(wanted) if self._trying == "down" else math.ceil(wanted)
        self.seats = float(max(1, seats))
        self._trial = _Level(self.seats, now_s, max(FOR_TRY, self.seats))

    def _learn(self, level: _Level, seen: Observation) -> None:
        # What was granted before, or with fewer at once, says nothing about this level.
        if seen.granted_s >= level.since_s and seen.at_grant >= _FULL * math.floor(level.seats):
            level.add(seen.now_s - seen.granted_s)
