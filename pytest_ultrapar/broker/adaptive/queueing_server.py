"""The search for the capacity of a server that queues requests and does not refuse them.

It is the number of requests in flight above which more requests bring no more answers per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.observation import SATURATED

if TYPE_CHECKING:
    from pytest_ultrapar.broker.adaptive.observation import Observation


ENOUGH, FOR_DOUBLING, FOR_TRY, GIVE_UP = 6, 12, 30, 50
"""Answers needed to judge a level, which is a number of requests in flight. The first is for the
lower level of a doubling, which gets no more; the second for its upper level; the third for the
level of a later try. Doubling ends after `GIVE_UP` answers at the upper level if the lower one has
too few."""
COME_BACK = 0.75
"""The share of a doubling's requests that must be answered: short answers come back first."""
PAYS = 0.5
"""Twice the seats must bring 2 ** 0.5 times the answers per second; otherwise doubling ends."""
UNPROVEN, AHEAD = 20.0, 1.25
"""Without evidence, doubling stops at `UNPROVEN` seats. With evidence, it goes up to `AHEAD` times
the seats that are known to pay: the answers for those are still on their way."""
MOST_GROWTH = 1.5
"""Beyond `UNPROVEN` seats, an answer counts only if the seats have grown by less than this factor
since its request: evidence is as old as an answer takes."""
UP, DOWN = 2.0, 0.8
"""The factor of a try upwards, where twice the answers show the effect soon, and of a try
downwards, which costs some answers."""
SPARE, LONGER = 1.1, 1.25
"""The sufficient number of seats is exceeded by a tenth, so that the server always has work. If
answers take `LONGER` times as long as with fewer requests in flight, fewer are tried."""
HOLD, OLD = 10.0, 30.0
"""How long the seats stay after a try that did not pay, and how old a level may be for a
comparison, in multiples of the time of an answer. Tasks change, and long tasks look like a
queue."""
LATE, FEW_LOST = 0.5, 3
"""Answers are late if they take this share of their time-out, or if at least this many requests,
and a tenth of the answers, time out. Then fewer requests in flight are tried."""
QUICKER = 0.9
_FULL = 0.95
_ANSWERS = 3.0


@dataclass(slots=True)
class _Level:
    """The answers with about this many requests in flight, as far as known."""

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
        # Per token if the answer states their number: a long answer does not show a queue.
        self.log_cost += math.log(took_s / (seen.feedback.tokens_out or 1))

    @property
    def n_all(self) -> int:
        return self.n + self.n_lost

    @property
    def mean_at_once(self) -> float:
        return math.exp(self.log_at_once / self.n_all)

    @property
    def mean_s(self) -> float:
        """The mean time of a request, answered or not; 0 if unknown."""
        return (self.took_s + self.lost_s) / max(1, self.n_all)

    @property
    def per_s(self) -> float:
        """Answers (or tokens) per second by Little's law; comparable between levels."""
        if not self.n:
            return 0.0
        answered = self.took_s / (self.took_s + self.lost_s)
        return answered * self.mean_at_once / self.cost

    @property
    def cost(self) -> float:
        """The time of an answer (or of a token), as a geometric mean."""
        return math.exp(self.log_cost / self.n) if self.n else math.inf

    def is_known(self, now_s: float, least_s: float = 0.0) -> bool:
        # Short answers come back first, so an early result is too good.
        enough = max(FOR_TRY, self.seats)
        mean_s = max(least_s, self.mean_s)
        return self.n_all >= enough and now_s - self.since_s >= _ANSWERS * mean_s

    def is_late(self, timeout_s: float) -> bool:
        """Whether its requests use too much of their time-out."""
        is_slow = self.n_all >= FOR_DOUBLING and self.mean_s > LATE * timeout_s
        return is_slow or self.n_lost >= max(FEW_LOST, 0.1 * self.n)


def _enough(low: _Level, high: _Level) -> float:
    """The least number of requests in flight that brings as much as the larger of two levels."""
    gain = high.per_s / low.per_s if low.per_s else math.inf
    return min(high.mean_at_once, low.mean_at_once * max(1.0, gain))


class PlateauSearch:
    """Finds the least number of requests in flight that brings the most answers per second. Pure.

    By Little's law this number is the answers per second times the time of an answer that does not
    wait. Two levels show both: the higher level shows the answers per second, and the lower one the
    time of an answer. While the seats double, the answers at each level are compared with those at
    a lower one. Once a doubling does not pay, this search sets the seats. After a while it tries
    twice as many, or fewer if answers take longer than necessary. From both levels it computes the
    sufficient number.

    A time-out takes its time and brings nothing. All durations are multiples of the observed time
    of an answer. Longer answers are only a reason to try, because longer tasks take longer, too.

    Attributes:
        seats: The seats that it sets; None while the seats still double.
        most: The seats up to which doubling is justified by evidence.
    """

    def __init__(self, ceiling: float = math.inf) -> None:
        """Start the search; it never tries more seats than `ceiling`."""
        self.seats: float | None = None
        self.most = UNPROVEN
        self._ceiling = ceiling
        self._doublings: dict[tuple[int, int], _Level] = {}
        self._base = _Level(1.0, 0.0)
        self._trial: _Level | None = None
        # The time of an answer in the last try of fewer seats.
        self._quick = 0.0
        self._hold = 0.0
        # The time that requests take at any number in flight.
        self._natural_s = 0.0

    @property
    def is_reached(self) -> bool:
        """Whether the plateau is reached, so that this search sets the seats."""
        return self.seats is not None

    def step(self, seats: float, seen: Observation) -> float:
        """The seats that an answer adds while they double; more if they lag behind the evidence."""
        # With twice the requests in flight, each may take twice as long.
        would_be_late = 2.0 * (seen.now_s - seen.granted_s) > LATE * seen.timeout_s
        is_old = seats >= UNPROVEN and seen.at_grant * MOST_GROWTH < seats
        if seats >= self.most or would_be_late or is_old:
            return 0.0
        return 2.0 if UNPROVEN <= seats < self.most / 2.0 else 1.0

    def doubles(self, seen: Observation) -> bool:
        """Learn from an answer or a time-out while the seats double.

        Returns:
            Whether doubling no longer pays: this search then sets the seats.
        """
        power = ((seen.at_grant + seen.in_flight) // 2).bit_length() - 1
        # For the two doublings above, it is an answer of the lower level.
        level, *_ = [self._counted((power + above, min(above, 1)), seen) for above in range(3)]
        low = self._doublings.get((power, 1))
        if low is None or seen.now_s - low.since_s > OLD * level.mean_s:
            low = _Level(0.0, seen.now_s)
        if self._is_late(level, seen):
            self._begin(level.mean_at_once, seen.now_s, hold=0.0)
            self._base = level
            self._try_less(seen)
        elif low.n < ENOUGH:
            if level.n >= GIVE_UP and 2.0 * level.seats > UNPROVEN:
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
        """Learn from an answer or a time-out once the plateau is reached."""
        assert self.seats is not None
        level = self._trial or self._base
        # A request granted earlier, or with fewer in flight, shows nothing about this level.
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
        # Repeat a try that paid immediately: after a change the way may be long.
        self._base = trial
        if is_more:
            self._try_on(seen)
        else:
            self._try_less(seen)

    def _give_up(self, seen: Observation, seats: float) -> None:
        """End a try that did not pay: hold the sufficient seats for a while."""
        if not self._is_up and self._is_late(self._base, seen):
            self._natural_s = self._base.mean_s
        self._begin(seats, seen.now_s, hold=HOLD)

    def _is_late(self, level: _Level, seen: Observation) -> bool:
        return level.is_late(seen.timeout_s) and level.mean_s > 1.2 * self._natural_s

    def _is_far(self, trial: _Level) -> bool:
        """Whether to try still fewer requests in flight: fewer helped, or most timed out."""
        return trial.n_lost > trial.n or trial.mean_s < QUICKER * self._base.mean_s

    def _begin(self, seats: float, now_s: float, *, hold: float) -> None:
        self.seats = float(max(1, min(self._ceiling, math.ceil(seats - 0.2))))
        self._base = _Level(self.seats, now_s)
        self._trial = None
        self._hold = hold

    def _try_less(self, seen: Observation) -> None:
        """Try as many requests in flight as would be in time, if their number makes them late."""
        in_time = LATE * seen.timeout_s / self._base.mean_s
        self._try(min(DOWN, in_time) * self._base.seats, seen)

    def _try_on(self, seen: Observation) -> None:
        """Try fewer seats if answers take longer than necessary, else more."""
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
    """Keeps a server busy and its queue nearly empty. Pure.

    Attributes:
        seats: The seats that it sets; None before the server's first report.
    """

    def __init__(self) -> None:
        self.seats: float | None = None

    def reported(self, running: float, waiting: float, *, seats: int, in_flight: int) -> None:
        """Adjust the seats to a report of the server.

        Args:
            running: Requests that the server processes, for all its clients.
            waiting: Requests in its queue.
            seats: The seats until now.
            in_flight: The number of taken seats.
        """
        held = float(seats)
        # The allowed queue, by the square-root rule for staffing: the server always has work.
        spare = max(1.0, math.sqrt(running))
        if waiting > spare:
            # Never below half: the report may be a second old.
            held = max(held / 2.0, min(held, math.ceil(in_flight - waiting + spare)))
        elif waiting <= spare / 2.0 and in_flight >= SATURATED * seats:
            held = math.ceil(held * GROWTH)
        self.seats = max(1.0, held)
