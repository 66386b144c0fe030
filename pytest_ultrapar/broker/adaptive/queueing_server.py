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
ENOUGH = 12
"""So many answers came while the seats went from half to where they are; more is not to be had."""
UNPROVEN, AHEAD = 40.0, 2.0
"""Doubling goes no further than to so many seats without evidence, and then to so many times those
that are known to have paid: the answers to as many are on their way."""
MOST_GROWTH = 1.5
"""Beyond those seats an answer counts only if there were not fewer by this when it was asked for:
evidence is as old as an answer takes."""
UP, MOST_UP = 1.25, 1.5
"""A try upwards, and one after others that paid. It must bring half of what it would where nothing
queues."""
DOWN, DOWN_LOSS = 0.8, 0.93
"""A try downwards, and what it must keep."""
HOLD, OLD = 15.0, 30.0
"""In times of an answer: how long the seats stay after a try that did not pay, and how old what a
doubling is compared with may be. Tasks change, and long ones look like a queue."""
LATE, SURELY_LATE = 0.5, 3
"""Answers that take this share of their time-out are late, and so are some time-outs: then fewer at
once are tried."""
QUICKER = 0.9
_FULL = 0.95
_ANSWERS = 3.0
_Try = Literal["none", "up", "down"]


@dataclass(slots=True)
class _Level:
    """What about so many requests at once bring, as far as is known."""

    seats: float
    since_s: float
    n: int = 0
    n_lost: int = 0
    at_once: float = 0.0
    took_s: float = 0.0
    lost_s: float = 0.0
    log_cost: float = 0.0

    def add(self, seen: Observation) -> None:
        took_s = max(seen.now_s - seen.granted_s, 1e-6)
        self.at_once += (seen.at_grant + seen.in_flight) / 2
        if not seen.is_served:
            self.n_lost += 1
            self.lost_s += took_s
            return
        self.n += 1
        self.took_s += took_s
        # By the token, where the answer says how many it has: long answers are no queue.
        self.log_cost += math.log(took_s / (seen.feedback.tokens_out or 1))

    @property
    def n_all(self) -> int:
        return self.n + self.n_lost

    @property
    def mean_s(self) -> float:
        """How long a request takes, answered or not; 0 where nothing is known."""
        return (self.took_s + self.lost_s) / max(1, self.n_all)

    @property
    def per_s(self) -> float:
        """Answers (or tokens) per second by Little's law; comparable with that of another level."""
        if not self.n:
            return 0.0
        answered = self.took_s / (self.took_s + self.lost_s)
        return answered * self.at_once / self.n_all / math.exp(self.log_cost / self.n)

    def is_known(self, now_s: float, least_s: float = 0.0) -> bool:
        # Short answers come back first: what is known too soon is too good.
        enough = max(FOR_TRY, self.seats)
        mean_s = max(least_s, self.mean_s)
        return self.n_all >= enough and now_s - self.since_s >= _ANSWERS * mean_s

    def is_late(self, timeout_s: float) -> bool:
        """Whether its requests take too much of the time that they have."""
        is_slow = self.n_all >= FOR_DOUBLING and self.mean_s > LATE * timeout_s
        return is_slow or self.n_lost >= max(SURELY_LATE, 0.1 * self.n)


class PlateauSearch:
    """Compares how many answers per second different numbers of seats bring. Pure.

    While the seats double it compares the answers to requests of which so many were on their way
    with those to twice as many. Once doubling did not pay, it holds the seats itself: tries a fifth
    less and a quarter more, keeps what pays, and stays where nothing did. A time-out takes its time
    and brings nothing. All its times are times of an answer, as it sees them.

    Why answers per second and not how long they take (as Vegas and gradient limiters): that grows
    with the tasks as well, nobody knows it for an empty queue, and a long average of it takes in
    the very queue that it should show.

    Attributes:
        seats: What it holds, once it does; None before.
        most: Seats to which doubling may go by what is known.
    """

    def __init__(self) -> None:
        self.seats: float | None = None
        self.most = UNPROVEN
        self._doublings: dict[int, _Level] = {}
        self._base = _Level(1.0, 0.0)
        self._trial: _Level | None = None
        self._trying: _Try = "none"
        self._up = UP
        self._turn = 0
        self._hold = 0.0
        # Requests that take so long do whatever is at once.
        self._natural_s = 0.0

    @property
    def is_reached(self) -> bool:
        """Whether it holds the seats."""
        return self.seats is not None

    def may_double(self, seats: float, seen: Observation) -> bool:
        """Whether an answer, while the seats double, is a reason to have one more."""
        # Twice as many at once may take twice as long.
        would_be_late = 2.0 * (seen.now_s - seen.granted_s) > LATE * seen.timeout_s
        is_old = seats >= UNPROVEN and seen.at_grant * MOST_GROWTH < seats
        return seats < self.most and not would_be_late and not is_old

    def doubles(self, seen: Observation) -> bool:
        """Take an answer or a time-out into account while the seats double.

        Returns:
            Whether doubling did not pay: from now on it holds the seats.
        """
        power = ((seen.at_grant + seen.in_flight) // 2).bit_length() - 1
        level = self._doublings.get(power)
        if level is None or seen.now_s - level.since_s > OLD * level.mean_s:
            level = self._doublings[power] = _Level(float(2**power), seen.now_s)
        level.add(seen)
        half = self._doublings.get(power - 1)
        if half is not None and seen.now_s - half.since_s > OLD * level.mean_s:
            half = None
        if self._is_late(level, seen):
            self._begin(level.at_once / level.n_all, seen.now_s, hold=0.0)
            self._base = level
            self._try_less(seen)
        elif half is not None and half.n >= ENOUGH and level.n >= FOR_TRY:
            if level.per_s >= LEAST_GAIN * half.per_s:
                self.most = max(self.most, AHEAD * 2.0 * level.seats)
            else:
                self._begin(level.seats, seen.now_s, hold=0.0)
        return self.is_reached

    def served(self, seen: Observation) -> None:
        """Take an answer or a time-out into account once the plateau is reached."""
        assert self.seats is not None
        level = self._trial or self._base
        # What was granted before, or with fewer at once, says nothing about this level.
        if seen.granted_s >= level.since_s and seen.at_grant >= _FULL * math.floor(level.seats):
            level.add(seen)
        is_late = self._is_late(level, seen)
        if self._trial is None:
            has_held = seen.now_s - level.since_s >= self._hold * level.mean_s
            if is_late:
                self._try_less(seen)
            elif has_held and level.is_known(seen.now_s):
                self._try(seen.now_s)
        elif is_late and self._trying == "down" and self._is_far(level):
            self._base = level
            self._try_less(seen)
        elif is_late and self._trying == "up":
            self._give_up(seen)
        elif level.is_known(seen.now_s, self._base.mean_s):
            self._judge(level, seen)

    def _judge(self, trial: _Level, seen: Observation) -> None:
        least = (1.0 + self._up) / 2.0 if self._trying == "up" else DOWN_LOSS
        if trial.per_s >= least * self._base.per_s:
            # What pays is tried again at once, upwards further: after a step the way is long.
            self._up = min(MOST_UP, 2.0 * self._up - 1.0) if self._trying == "up" else UP
            self._base = trial
            self._try(seen.now_s)
        else:
            self._give_up(seen)

    def _give_up(self, seen: Observation) -> None:
        """The try did not pay: back to where it began, for a while."""
        if self._trying == "down" and self._is_late(self._base, seen):
            self._natural_s = self._base.mean_s
        self._up = UP
        self._turn += 1
        self._begin(self._base.seats, seen.now_s, hold=HOLD)

    def _is_late(self, level: _Level, seen: Observation) -> bool:
        return level.is_late(seen.timeout_s) and level.mean_s > 1.2 * self._natural_s

    def _is_far(self, trial: _Level) -> bool:
        """Whether still fewer at once are to be tried: it helps, or most are lost."""
        return trial.n_lost > trial.n or trial.mean_s < QUICKER * self._base.mean_s

    def _begin(self, seats: float, now_s: float, *, hold: float) -> None:
        self.seats = max(1.0, seats)
        self._base = _Level(self.seats, now_s)
        self._trial = None
        self._trying = "none"
        self._hold = hold

    def _try_less(self, seen: Observation) -> None:
        """Try as many at once as would be in time, if it is their number that makes them late."""
        share = min(DOWN, LATE * seen.timeout_s / self._base.mean_s)
        self._trying = "down"
        self.seats = float(max(1, math.floor(share * self._base.seats)))
        self._trial = _Level(self.seats, seen.now_s)

    def _try(self, now_s: float) -> None:
        down = math.floor(DOWN * self._base.seats)
        if down < 1:
            # One seat cannot be less, so the only question left is whether it should be more.
            self._turn += self._turn % 2 == 0
        self._trying = "down" if self._turn % 2 == 0 else "up"
        seats = float(down if self._trying == "down" else math.ceil(self._up * self._base.seats))
        self.seats, self._trial = seats, _Level(seats, now_s)


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
