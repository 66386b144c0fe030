"""What a server bears that queues instead of refusing: where more at once brings no more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.observation import SATURATED

if TYPE_CHECKING:
    from pytest_ultrapar.broker.adaptive.observation import Observation


ENOUGH, FOR_DOUBLING, FOR_TRY, IN_VAIN = 6, 12, 30, 50
"""Answers that tell how long one takes with so many at once: with fewer while the seats double
(more are not to be had), with as many, and after that; and so many without any to fewer end it."""
COME_BACK = 0.75
"""Of as many as a doubling has, so many must be answered: short answers come back first."""
PAYS = 0.5
"""Twice the seats must bring 2 ** 0.5 times as much, else the end is reached."""
UNPROVEN, AHEAD = 20.0, 1.25
"""Doubling goes no further than to so many seats without evidence, and then to so many times those
that are known to have paid: the answers to as many are on their way."""
MOST_GROWTH = 1.5
"""Beyond those seats an answer counts only if there were not fewer by this when it was asked for:
evidence is as old as an answer takes."""
UP, DOWN = 2.0, 0.8
"""A try upwards, which twice the answers tell soon, and one downwards, which costs some."""
SPARE, LONGER = 1.1, 1.25
"""What is enough is exceeded by a tenth, so that the server never lacks work. Where answers take so
many times as long as with fewer at once, fewer are tried."""
HOLD, OLD = 10.0, 30.0
"""In times of an answer: how long the seats stay after a try that did not pay, and how old what a
doubling is compared with may be. Tasks change, and long ones look like a queue."""
LATE, SURELY_LATE = 0.5, 3
"""Answers that take this share of their time-out are late, and so are some time-outs: then fewer at
once are tried."""
QUICKER = 0.9
_FULL = 0.95
_ANSWERS = 3.0


@dataclass(slots=True)
class _Level:
    """What about so many requests at once bring, as far as is known."""

    seats: float
    since_s: float
    n: int = 0
    n_lost: int = 0
    log_at_once: float = 0.0
    took_s: float = 0.0
    lost_s: float = 0.0
    log_cost: float = 0.0

    def add(self, seen: Observation) -> None:
        took_s = max(seen.now_s - seen.granted_s, 1e-6)
        self.log_at_once += math.log((seen.at_grant + seen.in_flight) / 2)
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
    def mean_at_once(self) -> float:
        return math.exp(self.log_at_once / self.n_all)

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
        return answered * self.mean_at_once / self.cost

    @property
    def cost(self) -> float:
        """How long an answer (or a token) takes, the geometric mean."""
        return math.exp(self.log_cost / self.n) if self.n else math.inf

    def is_known(self, now_s: float, least_s: float = 0.0) -> bool:
        # Short answers come back first: what is known too soon is too good.
        enough = max(FOR_TRY, self.seats)
        mean_s = max(least_s, self.mean_s)
        return self.n_all >= enough and now_s - self.since_s >= _ANSWERS * mean_s

    def is_late(self, timeout_s: float) -> bool:
        """Whether its requests take too much of the time that they have."""
        is_slow = self.n_all >= FOR_DOUBLING and self.mean_s > LATE * timeout_s
        return is_slow or self.n_lost >= max(SURELY_LATE, 0.1 * self.n)


def _enough(low: _Level, high: _Level) -> float:
    """As many at once as bring what the larger of two levels does."""
    gain = high.per_s / low.per_s if low.per_s else math.inf
    return min(high.mean_at_once, low.mean_at_once * max(1.0, gain))


class PlateauSearch:
    """Has as many requests at once as bring the most answers per second, and no more. Pure.

    By Little's law so many are enough as there are answers per second, times how long one takes
    where none waits. Two numbers at once tell: the answers per second of the larger, and how long
    one takes with the smaller. While the seats double, answers to about as many are compared with
    those to fewer. Once doubling did not pay, it holds the seats itself, tries twice as many after
    a while, or fewer where answers take longer than they need to, and has what is enough by both.

    A time-out takes its time and brings nothing. All its times are times of an answer, as it sees
    them. That answers take longer is a reason to try and no more: they do with longer tasks, too.

    Attributes:
        seats: What it holds, once it does; None before.
        most: Seats to which doubling may go by what is known.
    """

    def __init__(self, ceiling: float = math.inf) -> None:
        """Start the search; never more seats than `ceiling` are tried."""
        self.seats: float | None = None
        self.most = UNPROVEN
        self._ceiling = ceiling
        self._doublings: dict[tuple[int, int], _Level] = {}
        self._base = _Level(1.0, 0.0)
        self._trial: _Level | None = None
        # How long an answer took when fewer at once were tried last.
        self._quick = 0.0
        self._hold = 0.0
        # Requests that take so long do whatever is at once.
        self._natural_s = 0.0

    @property
    def is_reached(self) -> bool:
        """Whether it holds the seats."""
        return self.seats is not None

    def step(self, seats: float, seen: Observation) -> float:
        """How many seats an answer adds while they double; more where they are behind evidence."""
        # Twice as many at once may take twice as long.
        would_be_late = 2.0 * (seen.now_s - seen.granted_s) > LATE * seen.timeout_s
        is_old = seats >= UNPROVEN and seen.at_grant * MOST_GROWTH < seats
        if seats >= self.most or would_be_late or is_old:
            return 0.0
        return 2.0 if UNPROVEN <= seats < self.most / 2.0 else 1.0

    def doubles(self, seen: Observation) -> bool:
        """Take an answer or a time-out into account while the seats double.

        Returns:
            Whether doubling did not pay: from now on it holds the seats.
        """
        power = ((seen.at_grant + seen.in_flight) // 2).bit_length() - 1
        # It is one to fewer as well, for the two doublings above.
        level, *_ = [self._counted((power + above, min(above, 1)), seen) for above in range(3)]
        low = self._doublings.get((power, 1))
        if low is None or seen.now_s - low.since_s > OLD * level.mean_s:
            low = _Level(0.0, seen.now_s)
        if self._is_late(level, seen):
            self._begin(level.mean_at_once, seen.now_s, hold=0.0)
            self._base = level
            self._try_less(seen)
        elif low.n < ENOUGH:
            if level.n >= IN_VAIN and 2.0 * level.seats > UNPROVEN:
                self._begin(level.mean_at_once, seen.now_s, hold=0.0)
        elif level.n >= max(FOR_DOUBLING, COME_BACK * level.seats):
            enough = _enough(low, level)
            if enough / low.mean_at_once >= (level.mean_at_once / low.mean_at_once) ** PAYS:
                self.most = max(self.most, AHEAD * 2.0 * level.seats)
            else:
                self._base = level
                self._try(DOWN * enough, seen)
        return self.is_reached

    def _counted(self, key: tuple[int, int], seen: Observation) -> _Level:
        level = self._doublings.get(key)
        if level is None or seen.now_s - level.since_s > OLD * level.mean_s:
            level = self._doublings[key] = _Level(2.0 ** key[0], seen.now_s)
        level.add(seen)
        return level

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
                self._try_on(seen)
        elif is_late and not self._is_up and self._is_far(level):
            self._base = level
            self._try_less(seen)
        elif is_late and self._is_up:
            self._give_up(seen, self._base.seats)
        elif level.is_known(seen.now_s, self._base.mean_s):
            self._judge(level, seen)

    @property
    def _is_up(self) -> bool:
        return self._trial is not None and self._trial.seats > self._base.seats

    def _judge(self, trial: _Level, seen: Observation) -> None:
        low, high = (self._base, trial) if self._is_up else (trial, self._base)
        enough = SPARE * _enough(low, high)
        if not self._is_up:
            self._quick = trial.cost
        is_more = enough * enough >= low.mean_at_once * high.mean_at_once
        if is_more != self._is_up:
            self._give_up(seen, enough)
            return
        # What pays is tried again at once: after a step the way is long.
        self._base = trial
        if is_more:
            self._try_on(seen)
        else:
            self._try_less(seen)

    def _give_up(self, seen: Observation, seats: float) -> None:
        """The try did not pay: back to what is enough, for a while."""
        if not self._is_up and self._is_late(self._base, seen):
            self._natural_s = self._base.mean_s
        self._begin(seats, seen.now_s, hold=HOLD)

    def _is_late(self, level: _Level, seen: Observation) -> bool:
        return level.is_late(seen.timeout_s) and level.mean_s > 1.2 * self._natural_s

    def _is_far(self, trial: _Level) -> bool:
        """Whether still fewer at once are to be tried: it helps, or most are lost."""
        return trial.n_lost > trial.n or trial.mean_s < QUICKER * self._base.mean_s

    def _begin(self, seats: float, now_s: float, *, hold: float) -> None:
        self.seats = float(max(1, min(self._ceiling, math.ceil(seats - 0.2))))
        self._base = _Level(self.seats, now_s)
        self._trial = None
        self._hold = hold

    def _try_less(self, seen: Observation) -> None:
        """Try as many at once as would be in time, if it is their number that makes them late."""
        in_time = LATE * seen.timeout_s / self._base.mean_s
        self._try(min(DOWN, in_time) * self._base.seats, seen)

    def _try_on(self, seen: Observation) -> None:
        """Try fewer where answers take longer than they need to, else more."""
        share = self._quick / self._base.cost
        in_time = LATE * seen.timeout_s / self._base.mean_s
        if share >= 1.0 / LONGER or self._base.seats < 1.0 / DOWN:
            self._try(math.ceil(max(1.1, min(UP, in_time)) * self._base.seats), seen)
        else:
            self._try(min(DOWN, SPARE * share or DOWN) * self._base.seats, seen)

    def _try(self, seats: float, seen: Observation) -> None:
        self.seats = float(max(1, min(self._ceiling, math.floor(seats))))
        self._trial = _Level(self.seats, seen.now_s)


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
        # So many may wait: a root, as queues are staffed, and the server never lacks work.
        spare = max(1.0, math.sqrt(running))
        if waiting > spare:
            # Never less than half, for the report may be a second old.
            held = max(held / 2.0, min(held, math.ceil(in_flight - waiting + spare)))
        elif waiting <= spare / 2.0 and in_flight >= SATURATED * seats:
            held = math.ceil(held * GROWTH)
        self.seats = max(1.0, held)
