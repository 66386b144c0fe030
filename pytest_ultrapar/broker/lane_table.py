"""All lanes and limits of a run. Takes seats, gives them back, and pauses or removes lanes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.controller import AdaptiveController
from pytest_ultrapar.broker.adaptive.seats import START
from pytest_ultrapar.broker.adaptive.server_load import servers_asked
from pytest_ultrapar.broker.headroom import longest_late_s, longest_spare_s
from pytest_ultrapar.broker.health import LaneHealth, LanePause, Pause, Removal, Resume
from pytest_ultrapar.broker.lanes import InstanceState, LaneSet, LaneState, LeaseTerms, ModelState
from pytest_ultrapar.broker.limits import LimitState
from pytest_ultrapar.broker.protocol import BIN, BUDGET, NO_PART, ModelProgress, TokenBounds
from pytest_ultrapar.broker.shares import GrantedUnits, Row
from pytest_ultrapar.broker.timers import Timer, TimerQueue
from pytest_ultrapar.pool.model import Limit

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Mapping

    from pytest_ultrapar.apis.failure_classes import Scope
    from pytest_ultrapar.broker.adaptive.observation import LimitChange
    from pytest_ultrapar.broker.adaptive.server_load import ServerLoad
    from pytest_ultrapar.broker.assignment import Group
    from pytest_ultrapar.broker.budget import Budgets, Way
    from pytest_ultrapar.broker.daily_limits import Days
    from pytest_ultrapar.broker.headroom import Promise
    from pytest_ultrapar.broker.health import Verdict
    from pytest_ultrapar.broker.protocol import Feedback, KnownLane, LeaseOutcome, LeaseRequest
    from pytest_ultrapar.broker.shares import HeldUnits
    from pytest_ultrapar.broker.waiting import HeldLease, WorkerState
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool


MANY = 1000
"""The number of seats that a lane without a limit is assumed to have."""
SPENT = 50
"""How many cases a host claims at once if all their requests are certain to be refused."""
_SHORTEST_S = 0.001
_LOG_BIN = math.log(BIN)


class Progress:
    """Counts the requests in each episode, and records how long each takes, at little cost."""

    def __init__(self) -> None:
        # For each open episode (by case id): its requests, by model. The case's own model comes
        # first.
        self._open: defaultdict[str, Counter[str]] = defaultdict(Counter)
        # For the ended episodes of each model: how many requests they sent to this model, and how
        # many to other models, which have roles.
        self._ended: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._ended_beside: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._seconds: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def sent(self, model: str, case_id: str) -> None:
        """Count a request that got a lease. Requests without a case id are not counted."""
        if case_id:
            self._open[case_id][model] += 1

    def came_back(self, held: HeldLease, outcome: LeaseOutcome, now_s: float) -> None:
        """Count a lease that was given back."""
        if outcome == "unsent" or held.is_check:
            return
        seconds = now_s - held.granted_s
        held.lane.busy_s += seconds
        self._seconds[held.lane.model.name][_bin(seconds)] += 1

    def ended(self, case_id: str) -> None:
        """Count an ended episode, unless it sent no requests or was already counted."""
        if asked := self._open.pop(case_id, None):
            model = next(iter(asked))
            self._ended[model][asked.pop(model)] += 1
            self._ended_beside[model].update(asked)

    def lost(self, case_ids: Iterable[str]) -> None:
        """Forget episodes that were lost with their worker: they start again elsewhere."""
        for case_id in case_ids:
            self._open.pop(case_id, None)

    def n_open(self) -> Counter[str]:
        """The number of open episodes, by model."""
        return Counter(next(iter(asked)) for asked in self._open.values())

    def status(self, held: Iterable[HeldLease], now_s: float) -> list[ModelProgress]:
        """Return a snapshot, with a row for each model that got requests.

        Args:
            held: All leases that have not been given back.
            now_s: The current time.
        """
        still_open: defaultdict[str, Counter[int]] = defaultdict(Counter)
        beside: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for asked in self._open.values():
            (model, n_requests), *others = asked.items()
            still_open[model][n_requests] += 1
            beside[model].update(dict(others))
        under_way: dict[str, Counter[int]] = {}
        for lease in held:
            counts = under_way.setdefault(lease.lane.model.name, Counter())
            counts[_bin(now_s - lease.granted_s)] += 1
        models = dict.fromkeys((*self._ended, *still_open, *self._seconds, *under_way))
        return [
            ModelProgress(
                model,
                ended=dict(self._ended.get(model, ())),
                open=dict(still_open.get(model, ())),
                seconds=dict(self._seconds.get(model, ())),
                under_way=dict(under_way.get(model, ())),
                ended_beside=dict(self._ended_beside.get(model, ())),
                open_beside=dict(beside.get(model, ())),
            )
            for model in models
        ]


def _bin(seconds: float) -> int:
    return round(math.log(max(seconds, _SHORTEST_S)) / _LOG_BIN)


class LaneTable:
    """The current state of all lanes and limits of a pool.

    Attributes:
        changed: Lanes that must be checked again, for example because a limit on their path became
            free. The scheduler empties this collection.
        removed: Newly removed lanes. The scheduler refuses the requests that no other lane can
            serve, and then empties this list.
        idle: Limits that have no requests in flight, and whose daily quota or money may be used up.
            The scheduler refuses the requests that cannot be served, and then empties this list.
        episode_timeout_s: How long an episode may last.
        wait_for_servers_s: How long to wait for a server that is not there or is loading its model
            (see `LaneHealth`).
        days: The ledgers that count daily units, by limit.
        budgets: Counts money; None if no limit has a budget.
        short: The model and budgets of each lane on which new cases are waiting for money to be
            freed.
        in_flight: The number of leases that have not been given back. `peak` is its maximum so far.
        started_s: When the first worker connected; infinity before that.
        progress: The counts for each model so far.
        shared: The rows of limits that are shared between hosts.
    """

    def __init__(
        self,
        pool: Pool,
        wakes: TimerQueue,
        rng: random.Random,
        *,
        episode_timeout_s: float,
        wait_for_servers_s: float,
        days: Mapping[str, Days],
        late_s: Promise,
        budgets: Budgets | None,
        shared: Iterable[tuple[str, str]],
    ) -> None:
        self._wakes = wakes
        self.budgets = budgets
        self.short: set[tuple[str, Way]] = set()
        purses = {} if budgets is None else budgets.purses
        self.episode_timeout_s = episode_timeout_s
        self.wait_for_servers_s = wait_for_servers_s
        self.idle: list[LimitState] = []
        self.days = days
        self._instances: dict[str, InstanceState] = {}
        # For each lane that is being checked: all lanes that wait for this check.
        self._held: dict[LaneState, list[LaneState]] = {}
        self.started_s = math.inf
        self.progress = Progress()
        self.claims_until_s = math.inf
        self.shared = tuple(Row(*row) for row in shared)
        words: dict[str, set[str]] = {}
        for row in self.shared:
            words.setdefault(row.limit, set()).add(row.word)
        self._limits = {
            name: self._wakened(
                LimitState(
                    limit, self.days.get(name, ()), late_s, purses.get(name), words.get(name, ())
                )
            )
            for name, limit in pool.limits.items()
        }
        self._sharing = [self._limits[name] for name in words]
        self._shares_end = Timer()
        self._shares_end.due = self.close_shares
        # For each lane: since when no request could be sent on it because the host has no share.
        self._closed_s: dict[LaneState, float] = {}
        self._touched: list[LimitState] = list(self._sharing)
        # For each open case: the limits whose seats it has used.
        self._open_on: dict[str, dict[LimitState, None]] = {}
        self._n_grants = 0
        self.models: dict[str, ModelState] = {}
        self.lanes: dict[LaneId, LaneState] = {}
        self.changed: dict[LaneState, None] = {}
        self.removed: list[LaneState] = []
        self.in_flight = self.peak = 0
        adaptive = {p.name for p in pool.providers if p.rate_mode == "adaptive"}
        real = [provider for provider in pool.providers if not provider.is_simulated]
        whole = {(one.name, model.name) for one in real for model in one.models if not model.stream}
        unheard = {
            (one.name, server.name) for one in pool.providers for server in servers_asked(one)
        }
        paths = {lane.lane_id: [self._limits[name] for name in lane.limits] for lane in pool.lanes}
        self._estimated: list[LimitState] = []
        self._urls = pool.urls
        for lane in pool.lanes:
            path = paths[lane.lane_id]
            counts = (one for one in reversed(path) if not _is_the_runs_own(pool.limits[one.name]))
            self._add(lane, path, next(counts, None), rng)
        for lane_state in self.lanes.values():
            lane_state.is_declared = lane_state.lane.provider not in adaptive
            lane_state.is_whole = (lane_state.lane.provider, lane_state.lane.model) in whole
            lane_state.is_unheard = (lane_state.lane.provider, lane_state.lane.instance) in unheard
            if lane_state.is_declared:
                continue
            limit = self._counted(lane_state)
            if limit.controller is None:
                self._control(limit, limit.most_seats)
        for limit in self._sharing:
            self._closed_s.update(dict.fromkeys(limit.lanes, -math.inf))
        for model in self.models.values():
            _set_balance(model.lanes)

    def _wakened(self, limit: LimitState) -> LimitState:
        """Have a limit's lanes checked when the limit allows a send or has daily units again."""

        def due(_: float) -> None:
            self.look_at(limit.lanes)
            if limit.day_trouble and not limit.seats.in_flight:
                self.idle.append(limit)

        limit.due = due
        return limit

    def lane_set(self, model: ModelState, lanes: Iterable[LaneState], now_s: float) -> LaneSet:
        """The set of `lanes`, all of this model. The same lanes always give the same object."""
        key = tuple(lanes)
        lane_set = model.sets.get(key)
        if lane_set is None:
            lane_set = model.sets[key] = LaneSet(key, now_s)
            for lane in key:
                lane.sets.append(lane_set)
        return lane_set

    def watch(self, lane: LaneState, now_s: float) -> None:
        """If only rates block a lane, set a wake for the time at which they allow a send."""
        if not (lane.is_up and lane.rated and lane.has_seat()):
            return
        bound: LimitState | None = None
        for limit in lane.rated:
            if limit.ready_s > now_s:
                if limit.wake_s <= limit.ready_s:
                    # All lanes of that limit, including this one, are checked at that time.
                    lane.rate_label = limit.wait_label
                    return
                if bound is None or limit.ready_s > bound.ready_s:
                    bound = limit
        if bound is not None:
            lane.rate_label = bound.wait_label
            self._wakes.ensure(bound, bound.ready_s)

    def take(self, lane: LaneState, now_s: float) -> float:
        """Take one unit of every limit on the lane's path. Every limit must have a free unit.

        Returns:
            How late the send is: the maximum of what `LimitState.take` returns for these limits.
        """
        behind_s, wake_s = 0.0, lane.on_time_s()
        for limit in lane.path:
            behind_s = max(behind_s, limit.take(now_s, wake_s))
        self._touched += lane.path
        self._n_grants += 1
        lane.used_order = self._n_grants
        if lane.granted == 0:
            lane.started_s = now_s
            lane.instance.started_s = min(lane.instance.started_s, now_s)
        lane.granted += 1
        lane.in_flight += 1
        lane.peak = max(lane.peak, lane.in_flight)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        return behind_s

    def pay(self, lease_id: int, held: HeldLease, most: TokenBounds) -> bool:
        """Reserve money for a lease.

        Returns:
            Whether there was enough money and the reservation was recorded. If not, the lease must
            not be used to send a request.
        """
        lane = held.lane
        if self.budgets is None or lane.tariff is None:
            return True
        units = lane.tariff.most(most)
        if not units:
            return True
        if any(units > purse.left for purse in lane.purses):
            return False
        for purse in lane.purses:
            purse.reserve(units)
        held.units += units
        held.n_guessed = most.n_guessed
        held.bounded = lane.tariff.most(most._replace(n_guessed=0))
        if held.case is not None:
            held.case.reserve(lane.lane, units)
        if self.budgets.reserved(lease_id, lane.lane, held.units):
            return True
        self.refuse_unaffordable()
        return False

    def settle_money(
        self, lease_id: int, held: HeldLease, outcome: LeaseOutcome, feedback: Feedback
    ) -> None:
        """Replace the money reserved for a lease with its actual cost."""
        lane, tariff = held.lane, held.lane.tariff
        assert self.budgets is not None
        assert tariff is not None
        used = tariff.charged(outcome, feedback, held.units)
        for limit in lane.metered:
            if limit.purse is not None:
                limit.purse.settle(held.units, used)
                if limit.head_of_line is not None:
                    self.look_at(limit.lanes)
        self.budgets.settled(lease_id, used)
        if held.case is not None and not held.is_check:
            needed = held.bounded
            if held.n_guessed:
                # Use the true length and not the estimate: estimates from the first answers are far
                # too high.
                needed += tariff.most(TokenBounds(0, feedback.tokens_out or 0))
            held.case.settle(lane.lane, reserved=held.units, needed=needed, used=used)
        if outcome == "ok" and feedback.tokens_out and not held.is_check:
            tariff.learn(feedback.tokens_out, held.n_guessed or 1)
        if self.budgets.trouble:
            self.refuse_unaffordable()
        self._look_at_short()

    def refuse_unaffordable(self) -> None:
        """Make the scheduler refuse requests that lack money that no request in flight can free."""
        limits = self._limits.values()
        self.idle += [one for one in limits if one.purse and not one.seats.in_flight]

    def answered(self, held: HeldLease, now_s: float) -> None:
        """Record an answer. If the case has a place, a seat is kept for its next request."""
        held.lane.answered(held.granted_s, now_s)
        for limit in held.lane.path:
            limit.places.answered(held.request.case_id, now_s - held.granted_s, now_s)

    def begins(self, case_id: str, lane: LaneState) -> None:
        """Record that an open case got a lease on a lane (its first one there or a later one)."""
        self._open_on.setdefault(case_id, {}).update(dict.fromkeys(lane.path))
        for limit in lane.path:
            limit.places.begin(case_id)

    def asks(self, case_id: str) -> None:
        """Record that a case has requested a lease or ended: no seat is kept for it any longer."""
        for limit in self._open_on.get(case_id, ()):
            limit.places.thinks.pop(case_id, None)
            if limit.places.keep:
                self.look_at(limit.lanes)

    def is_extra(self, case_id: str) -> bool:
        """Whether an open case lacks a place on at least one of the limits that it has used."""
        return not all(one.places.has_place(case_id) for one in self._open_on.get(case_id, ()))

    def _leave(self, case_id: str) -> None:
        self.asks(case_id)
        for limit in self._open_on.pop(case_id, ()):
            limit.places.end(case_id)

    def not_kept(self, lanes: list[LaneState], now_s: float) -> list[LaneState]:
        """The lanes in `lanes` whose free seats are not kept for cases with a place."""
        return [lane for lane in lanes if not self._is_kept(lane, now_s)]

    def _is_kept(self, lane: LaneState, now_s: float) -> bool:
        for limit in lane.path:
            if limit.places.keeps(now_s):
                self._wakes.ensure(limit, min(limit.places.thinks.values()))
                lane.rate_label = limit.seat_label
                return True
        return False

    def case_ended(self, case_id: str) -> None:
        """Record the end of an episode."""
        self._leave(case_id)
        self.progress.ended(case_id)
        if self.budgets is not None:
            self.budgets.cases.ended(case_id)
            self._look_at_short()

    def cases_lost(self, case_ids: Collection[str]) -> None:
        """Forget episodes that were lost with their worker."""
        for case_id in case_ids:
            self._leave(case_id)
        self.progress.lost(case_ids)
        if self.budgets is not None:
            self.budgets.cases.lost(case_ids)
            self._look_at_short()

    def _look_at_short(self) -> None:
        """If cases are waiting for money, have all lanes checked again: there may be enough now."""
        if self.short:
            self.short.clear()
            self.look_at(self.lanes.values())
            self.refuse_unaffordable()

    def that_may_begin(self, lanes: list[LaneState], *, few: bool = False) -> list[LaneState]:
        """The lanes in `lanes` on which a case may begin, because enough money is left for it.

        Args:
            lanes: Free lanes.
            few: Whether to return only lanes on whose limits few cases are open
                (`Places.has_few`).
        """
        if few:
            lanes = [one for one in lanes if all(limit.places.has_few() for limit in one.path)]
        if self.budgets is None:
            return lanes
        found: list[LaneState] = []
        cases = self.budgets.cases
        rich: set[tuple[str, Way]] = set()
        for lane in lanes:
            key = lane.model.name, cases.way(lane.lane)
            # Money is freed only when a request or a case ends.
            if key in rich or (key not in self.short and cases.may_begin(lane.lane)):
                rich.add(key)
                found.append(lane)
            else:
                self.short.add(key)
                lane.rate_label = BUDGET
        return found

    def needs(self, lane: LaneState, request: LeaseRequest) -> dict[str, int]:
        """How much money a request (or the case that it opens) needs on a lane, by limit."""
        if self.budgets is None:
            return {}
        if request.opens:
            return self.budgets.cases.needs(lane.lane)
        units = lane.units(request)
        return {one.name: units for one in lane.metered if one.purse is not None}

    def limit_without_money(
        self, lane: LaneState, request: LeaseRequest
    ) -> tuple[LimitState, int] | None:
        """Find a limit that has too little money for a request and has no requests in flight.

        Returns:
            The limit, and the units that the request needs; None if there is no such limit.
        """
        for name, units in self.needs(lane, request).items():
            limit = self._limits[name]
            if not limit.seats.in_flight and not limit.could_pay(units):
                return limit, units
        return None

    def give_back(self, lane: LaneState) -> None:
        """Give the seats of a lease back to all limits on its lane's path."""
        self.in_flight -= 1
        self._free_seat(lane)

    def part_ends_s(self, lane: LaneState) -> float:
        """When this host's claims or its shares of the limits end: the earlier of the two times."""
        is_shared = any(one.shares.rows for one in lane.path)
        return min(self.claims_until_s, self._shares_end.wake_s if is_shared else math.inf)

    def begin_term(
        self, lane: LaneState, lease_id: int, worker: WorkerState, send_by_s: float
    ) -> None:
        """Start a lease's term, which lasts until a request sent at `send_by_s` must be over."""
        end_s = send_by_s + lane.lane.request_s
        lane.terms.begin(lease_id, worker, end_s)
        self._wakes.ensure(lane.terms, end_s)

    def _end_terms(self, terms: LeaseTerms, now_s: float) -> None:
        """Free the seats of leases that were not given back by the end of their terms."""
        for lease_id, worker in terms.pop_over(now_s):
            held = worker.leases.pop(lease_id)
            if held.probes is not None:
                held.probes.probe_lost(now_s)
            lane = held.lane
            lane.outcomes["lost"] += 1
            self.give_back(lane)
        next_s = terms.next_end_s()
        if next_s is not None:
            self._wakes.ensure(terms, next_s)

    def orphan(self, lane: LaneState, now_s: float) -> None:
        """Free the seat of a lease whose holder is lost, after the lane's orphan grace.

        By then, the provider is assumed to have finished the request.
        """
        grace_s = lane.grace_s()
        self.in_flight -= 1
        lane.outcomes["lost"] += 1
        if grace_s <= 0:
            self._free_seat(lane)
            return
        lane.orphans += 1
        grace = Timer()
        grace.due = lambda _: self._orphan_over(lane)
        self._wakes.ensure(grace, now_s + grace_s)

    def _orphan_over(self, lane: LaneState) -> None:
        lane.orphans -= 1
        self._free_seat(lane)

    def begin_probe(self, lane: LaneState, now_s: float, send_by_s: float) -> None:
        """Pause the lane for a probe: until the lease just granted is given back or ends."""
        pause = lane.health.probe(now_s, send_by_s + lane.lane.request_s)
        self._pause(lane, pause, now_s)

    def begin_check(self, lane: LaneState, now_s: float, send_by_s: float) -> None:
        """Pause the lane for a check: until the lease just granted is given back or ends.

        This also pauses every lane that has never answered, if a failed check would remove it
        together with this lane.
        """
        check = lane.health.refusal_check
        check.is_being_checked = True
        others = [one for one in self._with(lane, check.scope) if one.health.refusal_check.is_new]
        self._held[lane] = [lane, *(one for one in others if one is not lane)]
        for one in self._held[lane]:
            self._pause(one, one.health.hold(send_by_s + lane.lane.request_s), now_s)

    def end_check(self, lane: LaneState, now_s: float) -> None:
        """End a check whose lease was given back or lost."""
        for one in self._held.pop(lane, ()):
            self.apply(one, one.health.resume(now_s), now_s)

    def count_retry(self, after: LaneId, lane: LaneState) -> None:
        """Count a retry: the request failed on the lane `after` and got a lease on `lane`."""
        lane.n_retries += 1
        failed = self.lanes.get(after)
        if failed is not None and failed is not lane:
            failed.n_moved += 1

    def give_headroom(self, held: HeldLease, feedback: Feedback, now_s: float) -> bool:
        """Widen the spacing of sends after a refusal, if that can prevent more such refusals.

        The declared limit may still be correct. The request may have come too soon after one that
        arrived late, or the provider may count in shorter windows than it declares. This method
        does nothing if the lane's limit is already being estimated. It never changes the limits
        that the user chose for the run, because no provider enforces them.

        Returns:
            Whether wider spacing is the solution, so that no limit has to be lowered.
        """
        lane = held.lane
        if not feedback.is_too_many or feedback.exceeded == "in_flight" or not lane.is_declared:
            return False
        if lane.counted is not None and lane.counted.controller is not None:
            return False
        counted = [limit for limit in lane.rated if not _is_the_runs_own(limit.declared)]
        # Pass the refusal to each limit, even if the spacing of an earlier one was widened.
        is_answer = False
        for limit in counted:
            is_answer |= limit.give_headroom(feedback.exceeded, held.granted_s, now_s)
        return is_answer

    def estimate(self, lane: LaneState, at_grant: int, now_s: float) -> LimitState:
        """Start to estimate a lane's limit, which a refusal has shown to be lower than declared.

        In this way, fixed mode also finds the rate that the provider accepts. From time to time it
        tries a higher rate, up to the declared limit.

        Args:
            lane: The lane whose request was refused. Its limit is not being estimated yet.
            at_grant: `HeldLease.at_grant` of the refused request: how many requests were in flight
                when its lease was granted, including this one.
            now_s: The current time.
        """
        limit = self._counted(lane)
        cap = limit.most_seats
        start = at_grant if cap == math.inf else max(1, limit.seats.cap)
        controller = self._control(limit, cap, start)
        since_s = min(one.started_s for one in limit.lanes)
        n_sent = sum(one.granted for one in limit.lanes)
        n_served = sum(one.n_served for one in limit.lanes)
        controller.served_before(n_served, sum(one.service_s for one in limit.lanes))
        n_now = limit.seats.in_flight / max(1.0, controller.seats.service_s)
        controller.pace.accepted.sent_before(n_sent, since_s, n_now, now_s)
        controller.note_start(now_s, limit.seats.in_flight)
        for model in {one.model for one in limit.lanes}:
            _set_balance(model.lanes)
        return limit

    def discard_estimate(self, limit: LimitState, now_s: float) -> None:
        """Discard a limit's estimate: the refusals behind it had nothing to do with the limit."""
        assert limit.controller is not None
        ceiling = limit.controller.seats.ceiling
        # In adaptive mode the limit is unknown, so the search starts again. In fixed mode, the
        # declared limit applies again.
        is_declared = limit.lanes[0].is_declared
        start = ceiling if is_declared and ceiling < math.inf else START
        controller = self._control(limit, ceiling, start)
        limit.pace_ready_s = -math.inf
        limit.reckon()
        controller.note_start(now_s, limit.seats.in_flight)
        self.look_at(limit.lanes)

    def apply(self, lane: LaneState, verdict: Verdict, now_s: float) -> None:
        """Carry out a verdict on a lane's health."""
        if isinstance(verdict, Pause):
            self._pause(lane, verdict, now_s)
        elif isinstance(verdict, Resume):
            self._resume(lane, now_s)
        else:
            for other in self._with(lane, verdict.scope):
                self._remove(other, verdict.reason, now_s)
                self.removed.append(other)

    def _with(self, lane: LaneState, scope: Scope | None) -> list[LaneState]:
        """The lanes to remove if `lane` is removed, including `lane`; empty if `scope` is None."""
        if scope is None:
            return []
        left = [one for one in self.lanes.values() if not one.is_removed]
        return [one for one in left if _is_removed_with(lane.lane, one.lane, scope)]

    def know(self, known: KnownLane, now_s: float) -> None:
        """Apply a check's result to a lane, before the lane gets its first request.

        The result affects no other lane, because the check has a separate result for each lane.
        """
        lane = self.lanes[known.lane_id]
        if known.removed:
            self.apply(
                lane, Removal("lane", f"{known.removed}: removed for the rest of the run"), now_s
            )
            return
        at_s = known.at_s
        verdict = lane.health.decide("rate", known.retry_after_s, at_s, at_s)
        if isinstance(verdict, Removal) or (isinstance(verdict, Pause) and verdict.until_s > now_s):
            self.apply(lane, verdict, now_s)

    def look_at(self, lanes: Iterable[LaneState]) -> None:
        """Make the scheduler check these lanes again."""
        self.changed.update(dict.fromkeys(lanes))

    def load_reported(self, provider: str, instance: str, load: ServerLoad, now_s: float) -> None:
        """Pass a server's load to the estimated limits that apply to no other instance."""
        for lane in self.lanes.values():
            lane.is_unheard &= (lane.lane.provider, lane.lane.instance) != (provider, instance)
        for limit in self._estimated:
            its = {(lane.lane.provider, lane.lane.instance) for lane in limit.lanes}
            if its != {(provider, instance)} or limit.controller is None:
                continue
            limit.controller.load_reported(load, limit.seats.in_flight, now_s)
            if limit.adopt_cap():
                self.look_at(limit.lanes)
            self._touched.append(limit)

    def set_shares(
        self,
        shares: Mapping[tuple[str, str], int],
        until_s: float,
        now_s: float,
        most: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        """Use these shares of the shared rows until `until_s` (see `LaneBroker.share`).

        Raises:
            ValueError: A row is not shared, or a share is not a whole number >= 0. In both cases
                no share has changed.
        """
        for row, units in shares.items():
            if row not in self.shared:
                raise ValueError(f"{' of '.join(reversed(row))} is not shared")
            if not isinstance(units, int) or units < 0:
                raise ValueError(f"a share must be a whole number >= 0 (got {units!r} of {row!r})")
        if until_s <= now_s:
            self.close_shares(now_s)
            return
        changed: dict[LimitState, None] = {}
        for row in self.shared:
            limit = self._limits[row.limit]
            if limit.shares.rows[row.word].set_share(shares.get(row, 0)):
                changed[limit] = None
        for (name, word), left in (most or {}).items():
            limit = self._limits[name]
            tranche = limit.shares.rows[word]
            assert isinstance(tranche, GrantedUnits)
            is_less, tranche.most = left < tranche.most, left
            if is_less and not limit.seats.in_flight:
                self.idle.append(limit)
        self._adopt_shares(changed, now_s)
        self._look_at_short()
        if until_s < math.inf:
            self._wakes.move(self._shares_end, until_s)
        else:
            self._shares_end.wake_s = math.inf

    def close_shares(self, now_s: float) -> None:
        """Stop granting leases on shared limits, because this host's shares are unknown."""
        for limit in self._sharing:
            for row in limit.shares.rows.values():
                row.close()
        self._adopt_shares(self._sharing, now_s)
        self._shares_end.wake_s = math.inf

    def _adopt_shares(self, limits: Iterable[LimitState], now_s: float) -> None:
        for limit in limits:
            limit.adopt_cap()
            limit.look_at_days(now_s)
            if limit.was_full and limit.seats.is_full:
                for lane in limit.lanes:
                    lane.seat_label = limit.seat_label
            self._touched.append(limit)
            self.look_at(limit.lanes)
        # Without a share, no request can be sent on a lane, so its silence does not count.
        for lane in {lane: None for limit in self._sharing for lane in limit.lanes}:
            if lane.is_share_closed:
                self._closed_s.setdefault(lane, now_s)
            elif lane in self._closed_s:
                lane.health.was_unused(self._closed_s.pop(lane), now_s)

    def holdings(self, now_s: float) -> dict[Row, HeldUnits]:
        """How many units of each shared row this host still holds."""
        shares = {row: self._limits[row.limit].shares for row in self.shared}
        return {row: its.rows[row.word].held(now_s) for row, its in shares.items()}

    def room(self) -> dict[str, int]:
        """How many more requests could be in flight, by model (see `BrokerStatus`)."""
        return {model.name: room_on(model.lanes) for model in self.models.values()}

    def lanes_of(self, rule: Group) -> list[LaneState]:
        """The lanes that the cases of a group may use."""
        if rule.lanes is None:
            return list(self.lanes.values())
        return [self.lanes[lane_id] for lane_id in rule.lanes]

    def limit(self, name: str) -> LimitState:
        """The pool's limit with this name."""
        return self._limits[name]

    def look_at_days(self, now_s: float) -> None:
        """Adjust the daily limits for the units that earlier runs have used."""
        for name in self.days:
            self._limits[name].look_at_days(now_s)

    def close(self, now_s: float) -> None:
        """When the run ends, end all pauses and record the daily units that were actually used."""
        for days in self.days.values():
            for _, ledger in days:
                ledger.close(now_s)
        for lane in self.lanes.values():
            lane.pauses.end(now_s)

    def take_changes(self) -> list[LimitChange]:
        """Return the changes to estimated limits since the last call, oldest first."""
        controllers = [limit.controller for limit in self._estimated if limit.controller]
        changes = [one for controller in controllers for one in controller.take_changes()]
        return sorted(changes, key=lambda change: change.t_s)

    def take_pauses(self) -> list[LanePause]:
        """Return the lane pauses that ended since the last call, sorted by their start times."""
        pauses = []
        for lane in self.lanes.values():
            over, lane.pauses.over = lane.pauses.over, []
            on = lane.lane
            pauses += [LanePause(on.provider, on.instance, on.key, *one) for one in over]
        return sorted(pauses, key=lambda pause: pause.t_s)

    def settle(self, now_s: float) -> None:
        """Update the lanes whose limits became full or free because of the events at `now_s`.

        This runs once per event, not once per seat. Under load, a seat that is given back is
        usually taken again during the same event, so in the end nothing has changed.
        """
        for limit in self._touched:
            is_full = limit.seats.is_full
            if is_full is limit.was_full:
                continue
            limit.was_full = is_full
            for lane in limit.lanes:
                if is_full:
                    lane.seat_label = limit.seat_label
                    self._fill(lane, now_s)
                else:
                    lane.n_full -= 1
                    if lane.n_full == 0:
                        for lane_set in lane.sets:
                            lane_set.lane_freed(now_s)
        self._touched.clear()

    def _counted(self, lane: LaneState) -> LimitState:
        """The limit that the provider is assumed to enforce on a lane. Creates one if necessary."""
        limit = lane.counted
        if limit is None:
            limit = lane.counted = self._wakened(LimitState(Limit(lane.lane.lane_id, "lane")))
            limit.lanes.append(lane)
            limit.seats.in_flight = limit.seats.peak = lane.in_flight
            lane.follow((*lane.path, limit))
        return limit

    def _control(
        self, limit: LimitState, ceiling: float, start: float = START
    ) -> AdaptiveController:
        """Give a limit a new controller, which estimates the limit.

        Lanes that share the limit share the estimate: a refusal on one lane affects all of them,
        and so do free seats.
        """
        controller = AdaptiveController(limit.name, ceiling, start=start)
        controller.heeds_headers = len({one.model for one in limit.lanes}) == 1
        if limit.controller is None:
            self._estimated.append(limit)
        limit.controller = controller
        limit.adopt_cap()
        self._touched.append(limit)
        for sharing in limit.lanes:
            sharing.follow(sharing.path)
        return controller

    def _add(
        self, lane: Lane, path: list[LimitState], counted: LimitState | None, rng: random.Random
    ) -> None:
        model = self.models.setdefault(lane.model, ModelState(lane.model))
        instance = self._instance(lane)
        health = LaneHealth(
            lane,
            rng,
            episode_timeout_s=self.episode_timeout_s,
            wait_for_servers_s=self.wait_for_servers_s,
            has_answered=instance.has_answered,
            base_url=self._urls.get((lane.provider, lane.instance), ""),
        )
        state = LaneState(lane, model, tuple(path), instance, health)
        state.counted = counted
        state.due = lambda now_s: self.apply(state, health.wake(now_s) or Resume(), now_s)
        state.terms.due = lambda now_s: self._end_terms(state.terms, now_s)
        if self.budgets is not None and any(limit.purse for limit in path):
            state.tariff = self.budgets.tariff(lane)
        for limit in path:
            limit.lanes.append(state)
        model.lanes.append(state)
        self.lanes[lane.lane_id] = state

    def _instance(self, lane: Lane) -> InstanceState:
        name = f"{lane.provider}/{lane.instance}"
        return self._instances.setdefault(name, InstanceState())

    def _free_seat(self, lane: LaneState) -> None:
        lane.in_flight -= 1
        for limit in lane.path:
            if limit.seats.is_full or limit.places.keep:
                # If a limit has free seats, no request waits for the limit: skip its other lanes.
                self.changed.update(dict.fromkeys(limit.lanes))
            limit.seats.give_back()
            if not limit.seats.in_flight and (limit.days or limit.purse):
                self.idle.append(limit)
        self._touched += lane.path

    def _pause(self, lane: LaneState, pause: Pause, now_s: float) -> None:
        if lane.is_removed:
            return
        lane.is_up = False
        lane.paused_until_s = pause.until_s
        lane.reason = pause.reason
        lane.rate_label = "pause"
        lane.pauses.begin(pause.cause, now_s)
        lane.model.down[lane] = None
        self._wakes.move(lane, pause.until_s)
        # Follow-ups that wait for this lane may use any other lane of the model from now on.
        self.look_at(lane.model.lanes)

    def _resume(self, lane: LaneState, now_s: float) -> None:
        if lane.is_up or lane.is_removed:
            return
        lane.is_up = True
        lane.paused_until_s = -math.inf
        lane.wake_s = math.inf
        lane.reason = ""
        lane.pauses.end(now_s)
        del lane.model.down[lane]
        self.changed[lane] = None

    def _remove(self, lane: LaneState, reason: str, now_s: float) -> None:
        lane.is_up = False
        lane.paused_until_s = math.inf
        lane.wake_s = math.inf
        lane.reason = reason
        lane.pauses.end(now_s)
        lane.removed_after_s = max(0.0, now_s - self.started_s)
        lane.model.down[lane] = None
        self._fill(lane, now_s)
        for lane_set in lane.sets:
            lane_set.n_alive -= 1
        self.look_at(lane.model.lanes)

    def _fill(self, lane: LaneState, now_s: float) -> None:
        lane.n_full += 1
        if lane.n_full == 1:
            for lane_set in lane.sets:
                lane_set.lane_filled(now_s)


def _is_removed_with(lane: Lane, other: Lane, scope: Scope) -> bool:
    # Compare the names of the secrets: several providers may use one key, and all of them then
    # refuse it.
    if scope in {"key", "key_model"}:
        is_of_model = scope == "key" or lane.model == other.model
        return is_of_model and lane.key_name == other.key_name
    if lane.provider != other.provider:
        return False
    if scope == "instance":
        return lane.instance == other.instance
    return lane.lane_id == other.lane_id


def _is_the_runs_own(limit: Limit) -> bool:
    """Whether this limit is one that the user chose for the run. No provider enforces it."""
    return limit.level in {"pool", "provider"} or not limit.rows


def _set_balance(lanes: list[LaneState]) -> None:
    # A limit that all lanes of a model share does not show which of them has more free seats.
    shared = set.intersection(*(set(lane.seats) for lane in lanes)) if len(lanes) > 1 else set()
    for lane in lanes:
        lane.balance = tuple(seats for seats in lane.seats if seats not in shared)


def room_on(lanes: Collection[LaneState]) -> int:
    """How many more requests could be in flight on these lanes (see `BrokerStatus`)."""
    lanes = [lane for lane in lanes if not lane.is_removed]
    if not lanes:
        # Requests are refused immediately, so they use no part of any limit.
        return 0
    if all(lane.is_spent for lane in lanes):
        # Requests are refused here, too. But if the host claimed no cases, the run would not end.
        return SPENT
    free: dict[LimitState, float] = {}
    room = NO_PART
    for lane in lanes:
        if not lane.is_up or lane.is_share_closed:
            continue
        own = MANY
        for limit in lane.path:
            left = free.setdefault(limit, limit.seats.cap - limit.seats.in_flight)
            own = int(max(0, min(own, left)))
        for limit in lane.path:
            free[limit] -= own
        room = max(0, room) + own
    return room


def free_s(limits: Collection[Limit], over_s: float) -> float:
    """The earliest time when the next run may send, so that both runs together exceed no limit.

    Within a run, sends are spaced so that no window contains more of them than the limit allows
    (`Pacer`). The same is true across two runs if the first run's last send and the next run's
    first send are spaced in this way. So for a spaced limit, the next run need not wait
    for a whole window. The exact time of the last send is not necessary: an upper bound is enough.
    Tokens are counted over the whole window, so for token limits the next run must wait for a whole
    window. Daily units cause no wait, because files keep their count from run to run. The headroom
    of the first run is not known here, so the maximum is assumed.

    Args:
        limits: The limits that apply to the first run's sends.
        over_s: The latest time at which the first run's last lease could have been granted. The
            lease may have been used a little later.
    """
    waits_s = [
        (kind.window_s + longest_spare_s(kind.window_s)) / (amount if kind.is_spaced else 1)
        + longest_late_s(kind.window_s)
        for limit in limits
        for kind, amount in limit.rows
        if kind.window_s and not kind.is_daily
    ]
    return over_s + max(waits_s, default=0.0)
