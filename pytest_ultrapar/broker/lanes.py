"""Lanes during a run, their instances and models, and the sets of lanes that requests wait for.

A lane belongs to an instance. Its *path* consists of the limits that apply to it (see the module
`limits`). The module `waiting` contains the requests that are waiting for lanes, and `scheduler`
decides which of them is served next.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.failure_classes import LIMITED
from pytest_ultrapar.broker.headroom import OF_WAKE
from pytest_ultrapar.broker.health import PauseLog
from pytest_ultrapar.broker.protocol import EstimatedLimit, LaneStatus
from pytest_ultrapar.broker.retry_budget import RetryBudget
from pytest_ultrapar.broker.throttles import UNRATED_SEND_BY_S
from pytest_ultrapar.broker.timers import Timer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.broker.budget import BudgetBalance, Tariff
    from pytest_ultrapar.broker.headroom import Headroom
    from pytest_ultrapar.broker.health import LaneHealth
    from pytest_ultrapar.broker.limits import LimitState
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.broker.throttles import Seats
    from pytest_ultrapar.broker.waiting import Line, WorkerState
    from pytest_ultrapar.pool.model import Lane

TELLING_ANSWERS = 20
"""Once a lane has given this many answers, a request is assumed to take no longer than the slowest
of these answers. If requests are similar, the chance that the next answer takes longer is at most 1
in 21."""


@dataclass(eq=False)
class ModelState:
    """The lanes of one model, and the number of requests that are waiting for them.

    Attributes:
        lanes: Its lanes, in the order of the pool.
        n_waiting: How many requests are waiting, excluding requests that may not start yet because
            of their group.
        n_follow_ups: How many of these are follow-ups.
        down: Its lanes that are paused or removed.
        sets: The sets of its lanes that requests have been restricted to so far.
        whole: The set of all its lanes; None until it is needed.
    """

    name: str
    lanes: list[LaneState] = field(default_factory=list)
    n_waiting: int = 0
    n_follow_ups: int = 0
    down: dict[LaneState, None] = field(default_factory=dict)
    sets: dict[tuple[LaneState, ...], LaneSet] = field(default_factory=dict)
    whole: LaneSet | None = None


class LeaseTerms(Timer):
    """The leases on one lane that have not been given back, oldest first.

    Leases on a lane have terms of about the same length, so they end in about the order in which
    they began. Each lease costs only one entry in a dict. This is also a timer, which is due when
    the oldest term ends. So it is due about once in the length of a term, not once for each lease.
    """

    def __init__(self) -> None:
        super().__init__()
        self._out: dict[int, tuple[WorkerState, float]] = {}

    def begin(self, lease_id: int, worker: WorkerState, end_s: float) -> None:
        """Add a granted lease. If its term ends before an older one, it is popped with that one."""
        self._out[lease_id] = worker, end_s

    def end(self, lease_id: int) -> None:
        """Remove a lease that was given back."""
        del self._out[lease_id]

    def pop_over(self, now_s: float) -> Iterator[tuple[int, WorkerState]]:
        """Remove and yield the leases whose terms have ended."""
        while self._out:
            lease_id, (worker, end_s) = next(iter(self._out.items()))
            if end_s > now_s:
                return
            del self._out[lease_id]
            yield lease_id, worker

    def next_end_s(self) -> float | None:
        """When the term of the oldest lease ends; None if there is no lease."""
        for _, end_s in self._out.values():
            return end_s
        return None


@dataclass(eq=False, slots=True)
class LaneState(Timer):
    """One lane: its limits, health, home workers and counts. Also a timer for the end of a pause.

    Attributes:
        path: The limits that apply to it. A lease takes one unit of each.
        seats: The seats of the limits that have a maximum number of seats.
        rated: The limits that may block a request although seats are free.
        metered: The limits that count tokens, daily units or money.
        purses: The budgets of the limits that have one.
        balance: The seats of limits that do not apply to all lanes of its model. Requests are
            distributed so that these seats are used evenly.
        headrooms: The headrooms of all limits on its path.
        counted: The limit that the provider is assumed to enforce on this lane's requests. It is
            the innermost limit on the path, leaving out limits that the user chose for the run. A
            refusal affects this limit. None if the pool has no such limit and the run has not begun
            to estimate one.
        is_declared: Whether the limits that the pool declares apply to it (fixed mode).
        is_up: Whether it is neither paused nor removed. A pause counts until its timer has
            been handled.
        paused_until_s: When its pause ends; -infinity if it is not paused, infinity if it is
            removed.
        reason: Why it is paused or removed; otherwise empty.
        n_full: How many limits on its path had no free seat at the last `LaneTable.settle`, plus
            one if the lane is removed.
        seat_label: The label of the limit that last blocked it for lack of a free seat.
            `rate_label`: the label of the last other obstacle, such as a rate limit or a `pause`.
        absent: Its home workers that have not requested a lease yet.
        is_stealable: Whether workers that are not at home here may use it.
        stealable_s: Since when such workers may use it.
        used_order: The number of its last grant in the sequence of all grants.
        n_served: How many requests it has answered. `n_refused`: how many it has refused because of
            a limit.
        n_retries: How many of its leases went to retries. `n_moved`: how many requests failed here
            and were retried on another lane.
        removed_after_s: When it was removed, in seconds after the run's start.
        terms: Its leases that have not been given back.
        tariff: Computes the cost of its requests; None if no budget applies to it.
        started_s: When its first lease was granted; infinity before that.
        service_s: How many seconds passed between the grant of a lease and the answer, summed over
            all answers. `longest_s`: the longest of these times.
        busy_s: How many seconds leases were in use, summed over the leases that were given back,
            except checks and leases that sent nothing.
        is_whole: As in `LaneStatus`.
        is_unheard: As in `LaneStatus`.
    """

    lane: Lane
    model: ModelState
    path: tuple[LimitState, ...]
    instance: InstanceState
    health: LaneHealth
    counted: LimitState | None = None
    tariff: Tariff | None = None
    is_declared: bool = True
    is_whole: bool = False
    is_unheard: bool = False
    seats: tuple[Seats, ...] = ()
    rated: tuple[LimitState, ...] = ()
    metered: tuple[LimitState, ...] = ()
    purses: tuple[BudgetBalance, ...] = ()
    balance: tuple[Seats, ...] = ()
    headrooms: tuple[Headroom, ...] = ()
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    sets: list[LaneSet] = field(default_factory=list)
    is_up: bool = True
    paused_until_s: float = -math.inf
    reason: str = ""
    n_full: int = 0
    seat_label: str = ""
    rate_label: str = ""
    absent: dict[str, None] = field(default_factory=dict)
    is_stealable: bool = True
    stealable_s: float = -math.inf
    used_order: int = 0
    in_flight: int = 0
    peak: int = 0
    granted: int = 0
    orphans: int = 0
    n_served: int = 0
    n_refused: int = 0
    n_retries: int = 0
    n_moved: int = 0
    started_s: float = math.inf
    service_s: float = 0.0
    longest_s: float = 0.0
    busy_s: float = 0.0
    pauses: PauseLog = field(default_factory=PauseLog)
    removed_after_s: float | None = None
    waited_s: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    outcomes: Counter[str] = field(default_factory=Counter)
    left_out: set[str] = field(default_factory=set)
    cut: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.instance.lanes.append(self)
        self.metered = tuple(one for one in self.path if one.meters or one.purse)
        self.purses = tuple(one.purse for one in self.path if one.purse is not None)
        self.headrooms = tuple(headroom for one in self.path for headroom, _ in one.headrooms)
        self.follow(self.path)

    def follow(self, path: tuple[LimitState, ...]) -> None:
        """Set the path of limits. Call this again when a limit on it gets a cap or a controller."""
        self.path = path
        self.seats = tuple(limit.seats for limit in path if limit.seats.cap < math.inf)
        self.rated = tuple(
            one for one in path if one.paced or one.days or one.purse or one.controller
        )

    @property
    def is_share_closed(self) -> bool:
        """Whether this host cannot use the lane, because it has no share of one of the limits."""
        return any(one.shares.is_closed for one in self.path)

    @property
    def is_removed(self) -> bool:
        """Whether it is removed for the rest of the run."""
        return self.paused_until_s == math.inf

    def is_free(self, now_s: float) -> bool:
        """Whether it is up, and each of its limits has a free seat and allows a send at `now_s`."""
        if not self.is_up:
            return False
        for limit in self.rated:
            if limit.ready_s > now_s:
                return False
        return self.has_seat()

    def send_by_s(self, granted_s: float) -> float:
        """The latest time at which a request that was due at `granted_s` may be sent."""
        late_s = UNRATED_SEND_BY_S
        for headroom in self.headrooms:
            late_s = min(late_s, headroom.send_by_s())
        return granted_s + late_s

    def on_time_s(self) -> float:
        """How late a send may be and still count as on time. All limits on the path use this value.

        If each limit had its own value, the schedule of a looser limit could fall behind the
        schedule of the tightest limit. Sends would then seem to be late for the looser limit.
        """
        return OF_WAKE * min((one.late_s for one in self.headrooms), default=0.0)

    def late_after_s(self, granted_s: float) -> float:
        """The time after which a request that was due at `granted_s` counts as late."""
        return granted_s + min((one.late_s for one in self.headrooms), default=math.inf)

    def has_seat(self) -> bool:
        """Whether every limit on the path has a free seat."""
        # Do not use `all(...)`: this code runs about 30 times per grant, and a generator costs
        # twice as much.
        for seats in self.seats:  # noqa: SIM110
            if seats.in_flight >= seats.cap:
                return False
        return True

    def fits(self, tokens: int) -> bool:
        """Whether each limit on its path is large enough for a request of this many tokens."""
        return all(
            tokens <= amount
            for limit in self.metered
            for kind, amount in limit.declared.rows
            if kind.counts == "tokens"
        )

    @property
    def is_spent(self) -> bool:
        """Whether all hosts together have used up a daily quota or a budget on its path."""
        return any(one.shares.is_spent for one in self.path)

    def spent_on(self, request: LeaseRequest, until_s: float, now_s: float) -> LimitState | None:
        """A limit on its path whose daily quota has no room for a request before `until_s`."""
        for limit in self.metered:
            if limit.days and limit.is_spent(request.tokens, until_s, now_s):
                return limit
        return None

    def units(self, request: LeaseRequest) -> int:
        """How much a request may cost on this lane, in units of money; 0 if there is no budget."""
        if self.tariff is None or request.most is None:
            return 0
        return self.tariff.most(request.most)

    def pays(self, request: LeaseRequest) -> bool:
        """Whether each budget on its path has enough money left for a request now."""
        units = self.units(request)
        return all(units <= purse.left for purse in self.purses)

    @property
    def load(self) -> float:
        """How full the fullest limit in `balance` is: 1 if it is full; 0 if there is no limit."""
        load = 0.0
        try:
            for seats in self.balance:
                load = max(load, seats.in_flight / seats.cap)
        except ZeroDivisionError:
            # The host's share is zero now.
            return 1.0
        return load

    def answered(self, granted_s: float, now_s: float) -> None:
        """Record an answer to the request of a lease. Outcomes are counted elsewhere."""
        took_s = now_s - granted_s
        self.n_served += 1
        self.service_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        self.instance.answered(now_s)

    def grace_s(self) -> float:
        """How many more seconds the provider may take to process the request of a dead worker."""
        most_s = self.lane.longest_grace_s
        if most_s is None or self.n_served < TELLING_ANSWERS:
            return self.lane.orphan_grace_s
        return min(self.longest_s, most_s)

    def status(self, now_s: float, under_way_s: float = 0.0) -> LaneStatus:
        """Return a snapshot. Its numbers do not change afterwards.

        Args:
            now_s: The current time.
            under_way_s: How many seconds its current leases have been in use, summed over the
                leases.
        """
        counts = self.outcomes
        neither = ("ok", "refused", *LIMITED, "closed", "unsent", "cancelled")
        return LaneStatus(
            lane=self.lane.lane_id,
            state="up" if self.is_up else "out" if self.is_removed else "paused",
            reason=self.reason,
            in_flight=self.in_flight,
            peak_in_flight=self.peak,
            granted=self.granted,
            n_ok=counts["ok"] + counts["refused"],
            n_rate_limited=sum(counts[outcome] for outcome in LIMITED),
            n_failed=sum(n for outcome, n in counts.items() if outcome not in neither),
            waited_s=dict(self.waited_s),
            outcomes=dict(counts),
            orphans=self.orphans,
            pauses=dict(self.pauses.n),
            paused_s=self.pauses.paused_s(now_s),
            n_opened=self.health.n_opened,
            n_moved=self.n_moved,
            removed_after_s=self.removed_after_s,
            estimated=self._estimate(),
            busy_s=self.busy_s + under_way_s,
            widened=tuple(limit.name for limit in self.rated if limit.is_widened),
            awaits="" if self.is_removed else self.health.awaits,
            left_out=tuple(sorted(self.left_out)),
            cut=self.cut,
            is_whole=self.is_whole,
            is_unheard=self.is_unheard,
        )

    def _estimate(self) -> EstimatedLimit | None:
        limit = self.counted
        if limit is None or limit.controller is None:
            return None
        workers, qps = limit.controller.estimate()
        declared_qps = min((rate.per_s for rate in limit.rates), default=math.inf)
        is_back = limit.controller.cap() >= limit.controller.seats.ceiling
        is_back = is_back and limit.controller.pace.rate >= declared_qps
        return EstimatedLimit(
            limit.name,
            workers,
            qps,
            limit.controller.n_cuts,
            limit.seats.peak,
            declared=self.is_declared,
            is_back=is_back,
        )


ANSWERING_S = 10.0
"""An instance that has answered a request in the last `ANSWERING_S` seconds is running. If it
refuses a request without `Retry-After`, it is congested. If an instance that has been silent for
longer refuses a request in this way, it has failed."""
BLOCK, TELLING_CUTS, UNRELIEVED = 64, 6, 0.22
"""Once the limit of an instance has been cut `TELLING_CUTS` times, its requests are judged in
blocks of `BLOCK` requests. If at least the share `UNRELIEVED` of a block is still refused, load is
not the reason. For comparison: while a limit is being estimated, 2 to 10 % of its requests are
refused, or up to 18 % if it is a quota per minute (`benchmarks/adaptive/play.py`)."""
SPAN_S, FAR_BELOW, STILL_REFUSED = 30.0, 0.25, 0.05
"""A smaller share, `STILL_REFUSED`, is enough if the provider is not busy. The block's requests
then come back at less than `FAR_BELOW` times the highest rate of answers in a span of at least
`SPAN_S` seconds."""


class InstanceState:
    """The lanes of an instance (one per key), the time of its last answer, and its retry budget.

    Attributes:
        answered_s: When a request on any of its lanes was last answered, in monotonic seconds;
            -infinity before the first answer.
        started_s: When the first request was sent to it; infinity before that.
        is_broken: Whether its 503s without `Retry-After` have nothing to do with load, for example
            because one of its servers is broken. Such 503s are then treated like other failures.
    """

    def __init__(self) -> None:
        self.answered_s = -math.inf
        self.started_s = math.inf
        self.lanes: list[LaneState] = []
        self.retries = RetryBudget()
        self.is_broken = False
        self._n_block = self._n_refused = self._n_span = 0
        self._block_s = self._span_s = self._best_per_s = 0.0

    def answered(self, now_s: float) -> None:
        """Record that a request on one of its lanes was answered."""
        self.answered_s = now_s
        self.retries.answered(now_s)

    def has_answered(self) -> bool:
        """Whether a request on any of its lanes was ever answered."""
        return self.answered_s > -math.inf

    def is_answering(self, now_s: float) -> bool:
        """Whether it answered in the last `ANSWERING_S` seconds and so may be congested."""
        return now_s - self.answered_s <= ANSWERING_S and not self.is_broken

    def is_starting(self, now_s: float) -> bool:
        """Whether it has given no answer yet, and got its first request only seconds ago."""
        return (
            not self.has_answered() and not self.is_broken and now_s - self.started_s <= ANSWERING_S
        )

    def learn(self, n_cuts: int, now_s: float, *, is_refused: bool) -> bool:
        """Record a request that was answered, or that was refused without `Retry-After`.

        Args:
            n_cuts: How often the limit of the request's lane has been cut.
            now_s: The current time.
            is_refused: Whether the request was refused.

        Returns:
            Whether it is now known that such refusals have nothing to do with load.
        """
        if now_s - self._span_s >= SPAN_S:
            if self._span_s:
                self._best_per_s = max(self._best_per_s, self._n_span / (now_s - self._span_s))
            self._span_s, self._n_span = now_s, 0
        self._n_span += not is_refused
        if n_cuts < TELLING_CUTS or self.is_broken:
            return False
        if self._n_block == 0:
            self._block_s = now_s
        self._n_block += 1
        self._n_refused += is_refused
        if self._n_block < BLOCK:
            return False
        share, per_s = self._n_refused / BLOCK, BLOCK / max(1e-9, now_s - self._block_s)
        is_far_below = per_s < FAR_BELOW * self._best_per_s
        self.is_broken = share >= UNRELIEVED or (share >= STILL_REFUSED and is_far_below)
        self._n_block = self._n_refused = 0
        return self.is_broken

    @property
    def is_removed(self) -> bool:
        """Whether all its lanes are removed, so that no more requests are sent to it."""
        return all(lane.is_removed for lane in self.lanes)

    def n_requests(self) -> int:
        """How many requests were sent to it, excluding retries that draw on a retry budget.

        The sum is computed only when it is needed, which is only after a failure. So it adds
        no cost to successful requests.
        """
        # Unsent leases do not count. Retries that were given back unsent are subtracted twice,
        # which errs on the side of caution.
        n = sum(lane.granted - lane.n_retries - lane.outcomes["unsent"] for lane in self.lanes)
        return max(0, n)


class LaneSet:
    """Lanes of one model that requests are restricted to, and how long all their seats were taken.

    This time is kept by a clock, which runs while no lane has a free seat. Each waiting request
    reads the clock when it arrives and when it leaves. The difference is the time that the request
    waited for a seat. So the cost of the clock does not depend on the number of waiting requests.

    Attributes:
        lanes: Its lanes, in the order of the pool.
        is_metered: Whether any of the lanes counts tokens, daily units or money. `is_spendable`:
            whether any counts daily units or money. `is_priced`: whether any counts money.
        n_alive: How many lanes are not removed.
        n_seated: How many lanes are not removed and have a free seat on each of their limits.
        follow_up_lines: The lines in which follow-ups are waiting. The first part of a line's key
            is the lane that its requests prefer (None for any lane). The second part tells whether
            their cases lack a place. Each line has at least one request.
        opening_lines: The lines in which opening requests are waiting, including requests that may
            not start yet because of their group. Each line has at least one request.
    """

    def __init__(self, lanes: tuple[LaneState, ...], now_s: float) -> None:
        self.lanes = lanes
        self.members = frozenset(lanes)
        self.is_metered = any(lane.metered for lane in lanes)
        self.is_priced = any(lane.tariff is not None for lane in lanes)
        self.is_spendable = any(one.days or one.purse for lane in lanes for one in lane.metered)
        self.n_alive = sum(not lane.is_removed for lane in lanes)
        self.n_seated = sum(lane.n_full == 0 for lane in lanes)
        self.follow_up_lines: dict[tuple[LaneState | None, bool], Line] = {}
        self.opening_lines: dict[Line, None] = {}
        self._full_s = 0.0
        self._full_since_s = now_s

    def full_s(self, now_s: float) -> float:
        """How many seconds in total, up to `now_s`, no lane in the set has had a free seat."""
        return self._full_s if self.n_seated else self._full_s + (now_s - self._full_since_s)

    def lane_filled(self, now_s: float) -> None:
        """Record that a lane of the set lost its last free seat or was removed."""
        self.n_seated -= 1
        if self.n_seated == 0:
            self._full_since_s = now_s

    def lane_freed(self, now_s: float) -> None:
        """Record that a lane of the set has a free seat again."""
        if self.n_seated == 0:
            self._full_s += now_s - self._full_since_s
        self.n_seated += 1
