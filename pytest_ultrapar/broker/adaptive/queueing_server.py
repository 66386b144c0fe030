"""The search for the capacity of a server that queues requests instead of refusing them.

The capacity is the number of requests in flight above which more requests do not bring more answers
per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.observation import SATURATED

if TYPE_CHECKING:
    from pytest_ultrapar.broker.adaptive.observation import Observation


ENOUGH, FOR_DOUBLING, FOR_TRY, GIVE_UP = 6, 12, 30, 50
"""How many answers are needed to judge a level (a certain number of requests in flight). `ENOUGH`
is for the lower level of a doubling, which gets no more answers later. `FOR_DOUBLING` is for its
upper level, and `FOR_TRY` for the level of a later try. If the lower level has too few answers,
doubling ends after `GIVE_UP` answers at the upper level."""
COME_BACK = 0.75
"""The share of a doubling's requests that must be answered before the doubling is judged. This is
necessary because short answers come back first."""
PAYS = 0.5
"""Doubling the seats must bring at least 2 ** 0.5 times the answers per second. Otherwise doubling
ends."""
UNPROVEN, AHEAD = 20.0, 1.25
"""Without evidence of a gain, doubling stops at `UNPROVEN` seats. With evidence, it continues up to
`AHEAD` times the number of seats that is known to bring a gain. Whether even more seats bring a
gain is unknown until more answers arrive."""
MOST_GROWTH = 1.5
"""An answer reflects the load at the time when its request was sent. So above `UNPROVEN` seats, it
counts only if the number of seats has grown by less than this factor since then."""
UP, DOWN = 2.0, 0.8
"""A try multiplies the number of seats by `UP` or by `DOWN`. Twice the seats soon show an effect.
Fewer seats cost some answers, so the step down is smaller."""
SPARE, LONGER = 1.1, 1.25
"""The search uses a tenth more seats than necessary, so that the server always has work. If answers
take more than `LONGER` times as long as with fewer requests in flight, fewer seats are tried."""
HOLD, OLD = 10.0, 30.0
"""How long the number of seats stays the same after a try without a gain, and how old a level may
be for a comparison. Both are multiples of the duration of an answer. There is a maximum age
because tasks change, and a change to longer tasks looks like a queue."""
LATE, FEW_LOST = 0.5, 3
"""Answers count as late if their mean duration exceeds the share `LATE` of their time-out. They
also count as late if at least `FEW_LOST` requests time out and there is at least one time-out for
every ten answers. The search then tries fewer requests in flight."""
QUICKER = 0.9
_FULL = 0.95
_ANSWERS = 3.0


@dataclass(slots=True)
class _Level:
    """The answers received so far while about `seats` requests were in flight."""

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
        # If the number of tokens is known, measure the time per token: a long answer does not mean
        # a queue.
        self.log_cost += math.log(took_s / (seen.feedback.tokens_out or 1))

    @property
    def n_all(self) -> int:
        return self.n + self.n_lost

    @property
    def mean_at_once(self) -> float:
        return math.exp(self.log_at_once / self.n_all)

    @property
    def mean_s(self) -> float:
        """The mean duration of a request, answered or not; 0 if unknown."""
        return (self.took_s + self.lost_s) / max(1, self.n_all)

    @property
    def per_s(self) -> float:
        """Answers (or tokens) per second, by Little's law. Levels are compared by this number."""
        if not self.n:
            return 0.0
        answered = self.took_s / (self.took_s + self.lost_s)
        return answered * self.mean_at_once / self.cost

    @property
    def cost(self) -> float:
        """The time per answer (or per token), as a geometric mean."""
        return math.exp(self.log_cost / self.n) if self.n else math.inf

    def is_known(self, now_s: float, least_s: float = 0.0) -> bool:
        # Short answers come back first, so an early result would be too good.
        enough = max(FOR_TRY, self.seats)
        mean_s = max(least_s, self.mean_s)
        return self.n_all >= enough and now_s - self.since_s >= _ANSWERS * mean_s

    def is_late(self, timeout_s: float) -> bool:
        """Whether requests at this level come too close to their time-out or exceed it."""
        is_slow = self.n_all >= FOR_DOUBLING and self.mean_s > LATE * timeout_s
        return is_slow or self.n_lost >= max(FEW_LOST, 0.1 * self.n)


def _enough(low: _Level, high: _Level) -> float:
    """The fewest requests in flight that bring as many answers per second as the higher level."""
    gain = high.per_s / low.per_s if low.per_s else math.inf
    return min(high.mean_at_once, low.mean_at_once * max(1.0, gain))


class PlateauSearch:
    """Finds the smallest number of requests in flight that brings the most answers per second.

    According to Little's law, this is the number of answers per second times the duration of an
    answer when no request has to wait. The number of answers per second is known from a higher
    level (number of requests in flight), and the duration from a lower one.

    While the seats double, the answers at each level are compared with those at a lower level. Once
    a doubling brings no gain, this search sets the number of seats. After a while it tries twice as
    many seats, or fewer if answers take longer than necessary. From the levels before and during
    the try, it computes how many seats are enough.

    A time-out takes up a seat but does not count as an answer. All periods of the search are
    multiples of the observed duration of an answer. Longer answers are a reason to try fewer seats.
    They do not prove that there are too many seats, because the tasks may have become longer. The
    search does no I/O.

    Attributes:
        seats: The number of seats that the search sets; None while the seats still double.
        most: The number of seats up to which evidence justifies doubling.
    """

    def __init__(self, ceiling: float = math.inf) -> None:
        """Start the search. It never tries more seats than `ceiling`."""
        self.seats: float | None = None
        self.most = UNPROVEN
        self._ceiling = ceiling
        self._doublings: dict[tuple[int, int], _Level] = {}
        self._base = _Level(1.0, 0.0)
        self._trial: _Level | None = None
        # The duration of an answer in the last try with fewer seats.
        self._quick = 0.0
        self._hold = 0.0
        # How long requests take regardless of how many are in flight.
        self._natural_s = 0.0

    @property
    def is_reached(self) -> bool:
        """Whether the plateau was reached, so that this search sets the seats."""
        return self.seats is not None

    def step(self, seats: float, seen: Observation) -> float:
        """How many seats an answer adds during doubling.

        From `UNPROVEN` seats on, it adds two if the evidence justifies more than twice the current
        number of seats.
        """
        # With twice the requests in flight, each may take twice as long.
        would_be_late = 2.0 * (seen.now_s - seen.granted_s) > LATE * seen.timeout_s
        is_old = seats >= UNPROVEN and seen.at_grant * MOST_GROWTH < seats
        if seats >= self.most or would_be_late or is_old:
            return 0.0
        return 2.0 if UNPROVEN <= seats < self.most / 2.0 else 1.0

    def doubles(self, seen: Observation) -> bool:
        """Learn from an answer or a time-out while the seats double.

        Returns:
            Whether doubling no longer brings a gain, so that this search sets the seats from now
            on.
        """
        power = ((seen.at_grant + seen.in_flight) // 2).bit_length() - 1
        # This answer also counts as one at the lower level of the next two doublings.
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
        """Learn from an answer or a time-out after the plateau was reached."""
        assert self.seats is not None
        level = self._trial or self._base
        # A request granted earlier or with fewer in flight gives no information about this level.
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
        # If a try brought a gain, continue in that direction at once: the best number may be far
        # away.
        self._base = trial
        if is_more:
            self._try_on(seen)
        else:
            self._try_less(seen)

    def _give_up(self, seen: Observation, seats: float) -> None:
        """End a try that brought no gain, and keep just enough seats for a while."""
        if not self._is_up and self._is_late(self._base, seen):
            self._natural_s = self._base.mean_s
        self._begin(seats, seen.now_s, hold=HOLD)

    def _is_late(self, level: _Level, seen: Observation) -> bool:
        return level.is_late(seen.timeout_s) and level.mean_s > 1.2 * self._natural_s

    def _is_far(self, trial: _Level) -> bool:
        """Whether to try even fewer requests in flight.

        This is so if fewer requests made answers faster, or if most requests timed out.
        """
        return trial.n_lost > trial.n or trial.mean_s < QUICKER * self._base.mean_s

    def _begin(self, seats: float, now_s: float, *, hold: float) -> None:
        self.seats = float(max(1, min(self._ceiling, math.ceil(seats - 0.2))))
        self._base = _Level(self.seats, now_s)
        self._trial = None
        self._hold = hold

    def _try_less(self, seen: Observation) -> None:
        """Try fewer requests in flight.

        If the load made answers late, the number is small enough for answers to be in time.
        """
        in_time = LATE * seen.timeout_s / self._base.mean_s
        self._try(min(DOWN, in_time) * self._base.seats, seen)

    def _try_on(self, seen: Observation) -> None:
        """Try fewer seats if answers take longer than necessary, otherwise more."""
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
    """Keeps a server busy and its queue nearly empty. Does no I/O.

    Attributes:
        seats: The number of seats that the search sets; None before the server's first report.
    """

    def __init__(self) -> None:
        self.seats: float | None = None

    def reported(self, running: float, waiting: float, *, seats: int, in_flight: int) -> None:
        """Adjust the number of seats after a report from the server.

        Args:
            running: How many requests the server is processing, for all its clients.
            waiting: How many requests are in its queue.
            seats: The current number of seats.
            in_flight: How many seats are taken.
        """
        held = float(seats)
        # Allow a queue of this length, so that the server always has work (square-root staffing
        # rule).
        spare = max(1.0, math.sqrt(running))
        if waiting > spare:
            # Do not go below half, because the report may be a second old.
            held = max(held / 2.0, min(held, math.ceil(in_flight - waiting + spare)))
        elif waiting <= spare / 2.0 and in_flight >= SATURATED * seats:
            held = math.ceil(held * GROWTH)
        self.seats = max(1.0, held)
