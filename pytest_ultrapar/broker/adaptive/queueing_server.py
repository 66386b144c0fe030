"""What a server bears that queues instead of refusing: where more at once brings no more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.broker.adaptive.observation import SATURATED

if TYPE_CHECKING:
    from pytest_ultrapar.broker.adaptive.observation import Observation


LEAST_GAIN = 1.3
"""Twice the seats must bring so much more, else the end is reached."""
FOR_DOUBLING, FOR_TRY = 20, 50
"""Answers that tell how long one takes with so many at once. The mean of their logarithms is good
to a tenth, enough to tell twice as many answers from as many; a try asks for less and knows more.
"""
UP, UP_GAIN = 1.25, 1.12
"""A try upwards, and what it must bring: half of what it would where nothing queues."""
DOWN, DOWN_LOSS = 0.8, 0.93
"""A try downwards, and what it must keep."""
HOLD_S = 15.0
"""How long the seats stay after a try that did not pay."""
OLD_S = 30.0
"""What a doubling is compared with is no older: tasks change, and long ones look like a queue."""
_FULL = 0.95
_ANSWERS = 2.0
_Try = Literal["none", "up", "down"]


@dataclass(slots=True)
class _Level:
    """How long answers take with about so many at once, as far as is known."""

    seats: float
    since_s: float
    n: int = 0
    took_s: float = 0.0
    log_cost: float = 0.0

    def add(self, seen: Observation) -> None:
        took_s = max(seen.now_s - seen.granted_s, 1e-6)
        self.n += 1
        self.took_s += took_s
        # By the token, where the answer says how many it has: long answers are no queue.
        self.log_cost += math.log(took_s / (seen.feedback.tokens_out or 1))

    @property
    def per_s(self) -> float:
        """Answers (or tokens) per second by Little's law; comparable with that of another level."""
        return self.seats / math.exp(self.log_cost / self.n)

    def is_known(self, now_s: float) -> bool:
        # Short answers come back first: what is known too soon is too good.
        enough = max(FOR_TRY, self.seats)
        return self.n >= enough and now_s - self.since_s >= _ANSWERS * self.took_s / self.n


class PlateauSearch:
    """Compares how many answers per second different numbers of seats bring. Pure.

    While the seats double it compares the answers to requests of which so many were on their way
    with those to twice as many. Once doubling did not pay, it holds the seats itself: tries a fifth
    less and a quarter more, keeps what pays, and stays where nothing did.

    Why answers per second and not how long they take (as Vegas and gradient limiters): that grows
    with the tasks as well, nobody knows it for an empty queue, and a long average of it takes in
    the very queue that it should show.

    Attributes:
        seats: What it holds, once it does; None before.
    """

    def __init__(self) -> None:
        self.seats: float | None = None
        self._doublings: dict[int, _Level] = {}
        self._base = _Level(1.0, 0.0)
        self._trial: _Level | None = None
        self._trying: _Try = "none"
        self._turn = 0
        self._hold_s = 0.0

    @property
    def is_reached(self) -> bool:
        """Whether it holds the seats."""
        return self.seats is not None

    def doubles(self, seen: Observation) -> bool:
        """Take a success into account while the seats double.

        Returns:
            Whether doubling did not pay: from now on it holds the seats.
        """
        power = seen.at_grant.bit_length() - 1
        level = self._doublings.get(power)
        if level is None or seen.now_s - level.since_s > OLD_S:
            level = self._doublings[power] = _Level(float(2**power), seen.now_s)
        level.add(seen)
        half = self._doublings.get(power - 1)
        if half is None or min(level.n, half.n) < FOR_DOUBLING:
            return False
        if seen.now_s - half.since_s <= OLD_S and level.per_s < LEAST_GAIN * half.per_s:
            self._begin(level.seats, seen.now_s, hold_s=0.0)
        return self.is_reached

    def served(self, seen: Observation) -> None:
        """Take a success into account once the plateau is reached."""
        assert self.seats is not None
        if self._trial is None:
            self._learn(self._base, seen)
            has_held = seen.now_s - self._base.since_s >= self._hold_s
            if has_held and self._base.is_known(seen.now_s):
                self._try(seen.now_s)
            return
        self._learn(self._trial, seen)
        if not self._trial.is_known(seen.now_s):
            return
        least = UP_GAIN if self._trying == "up" else DOWN_LOSS
        if self._trial.per_s >= least * self._base.per_s:
            # What pays is tried again at once: after a step the way is long.
            self._base = self._trial
            self._try(seen.now_s)
        else:
            self._turn += 1
            self._begin(self._base.seats, seen.now_s, hold_s=HOLD_S)

    def _begin(self, seats: float, now_s: float, *, hold_s: float) -> None:
        self.seats = max(1.0, seats)
        self._base = _Level(self.seats, now_s)
        self._trial = None
        self._trying = "none"
        self._hold_s = hold_s

    def _try(self, now_s: float) -> None:
        down = math.floor(DOWN * self._base.seats)
        if down < 1:
            # One seat cannot be less, so the only question left is whether it should be more.
            self._turn += self._turn % 2 == 0
        self._trying = "down" if self._turn % 2 == 0 else "up"
        self.seats = float(down if self._trying == "down" else math.ceil(UP * self._base.seats))
        self._trial = _Level(self.seats, now_s)

    def _learn(self, level: _Level, seen: Observation) -> None:
        # What was granted before, or with fewer at once, says nothing about this level.
        if seen.granted_s >= level.since_s and seen.at_grant >= _FULL * math.floor(level.seats):
            level.add(seen)


MOST_WAITING = 0.05
"""Of the running requests so many may wait: enough that the server never lacks work."""
GROWTH = 1.25


class QueueSearch:
    """Keeps a server's queue near empty and the server busy. Pure.

    Attributes:
        seats: What it holds; None until the server has said something.
    """

    def __init__(self) -> None:
        self.seats: float | None = None

    def reported(self, running: float, waiting: float, *, seats: int, in_flight: int) -> None:
        """Take a report of the server into account.

        Args:
            running: Requests that it works on, of all its clients.
            waiting: Requests in its queue.
            seats: Seats until now.
            in_flight: How many of them are taken.
        """
        held = float(seats)
        allowed = max(1.0, MOST_WAITING * running)
        if waiting > allowed:
            # What waits is too much; never less than half, for the report may be a second old.
            held = max(held / 2.0, min(held, in_flight) - (waiting - allowed))
        elif in_flight >= SATURATED * seats:
            held = math.ceil(held * GROWTH)
        self.seats = max(1.0, held)

    def cut(self, seats: float) -> None:
        """A refusal says that these are enough."""
        if self.seats is not None:
            self.seats = min(self.seats, seats)
