"""The broker as a pure state machine. It alone manages all limits."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.failure_classes import ANSWERED, COUNTED, LIMITED, OF_LANE, OWN
from pytest_ultrapar.broker import wire
from pytest_ultrapar.broker.adaptive.observation import Observation
from pytest_ultrapar.broker.assignment import check_assignment
from pytest_ultrapar.broker.demand import wants_of
from pytest_ultrapar.broker.groups import GroupBook
from pytest_ultrapar.broker.headroom import never_late_s
from pytest_ultrapar.broker.lane_table import LaneTable, room_on
from pytest_ultrapar.broker.limits import settle
from pytest_ultrapar.broker.notices import NoticeBook
from pytest_ultrapar.broker.protocol import (
    NO_LANE,
    OF_REQUEST,
    TAKEN,
    Action,
    BrokerStatus,
    Grant,
    GroupProgress,
    Refusal,
)
from pytest_ultrapar.broker.refusal_cause import next_lanes
from pytest_ultrapar.broker.retry_budget import ParkedRetry
from pytest_ultrapar.broker.scheduler import (
    Homes,
    Scheduler,
    no_such_group,
    no_such_model,
    other_lane,
    too_large,
)
from pytest_ultrapar.broker.timers import TimerQueue
from pytest_ultrapar.broker.waiting import Waiting, WorkerState
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.settings import EPISODE_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.adaptive.observation import LimitChange
    from pytest_ultrapar.broker.adaptive.server_load import ServerLoad
    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.budget import Budgets
    from pytest_ultrapar.broker.daily_limits import Days
    from pytest_ultrapar.broker.demand import HostDemand
    from pytest_ultrapar.broker.groups import GroupState
    from pytest_ultrapar.broker.headroom import Promise
    from pytest_ultrapar.broker.health import LanePause
    from pytest_ultrapar.broker.lanes import InstanceState, LaneSet, LaneState, ModelState
    from pytest_ultrapar.broker.notices import LaneNotice
    from pytest_ultrapar.broker.protocol import (
        Feedback,
        KnownLane,
        LeaseOutcome,
        LeaseRequest,
        ShareStatus,
        TokenBounds,
    )
    from pytest_ultrapar.broker.retry_budget import RetryBudget
    from pytest_ultrapar.broker.shares import HeldUnits, Row
    from pytest_ultrapar.broker.waiting import HeldLease
    from pytest_ultrapar.pool.model import LaneId, Pool

__all__ = ["Action", "Grant", "LaneBroker", "Refusal"]


class LaneBroker:
    """Grants leases so that no limit is ever exceeded and no request waits while a lane is free.

    No I/O, no clock, no asyncio: every method takes `now_s` (monotonic seconds) and returns the
    messages to send, with their receivers. The same calls at the same times return the same
    actions. If a time is earlier than in the previous call, the time of the previous call is used
    again, so that a clock that goes backwards never admits more requests.

    Between two calls, no free lane could serve a waiting request. There are three exceptions. A
    free lane may be reserved for its home workers. A free seat may be reserved for the oldest cases
    (`places`). This host's claims on its cases may have ended. If a lane is blocked only by a rate,
    a pause or a reservation, `next_wake_s()` is no later than the end of this delay.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        seed: int = 0,
        episode_timeout_s: float = EPISODE_TIMEOUT_S,
        wait_for_servers_s: float = 0.0,
        known: Iterable[KnownLane] = (),
        days: Mapping[str, Days] | None = None,
        late_s: Promise = never_late_s,
        budgets: Budgets | None = None,
        shared: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Start with no requests in flight. All lanes are up, except for those in `known`.

        Args:
            pool: The lanes and limits.
            seed: The seed for the random part (jitter) of pauses.
            episode_timeout_s: How long an episode may last, > 0 seconds. A lane that has answered
                no request for that long is removed.
            wait_for_servers_s: How long to wait for a server that is not available (`LaneHealth`).
            known: Lanes to remove or pause when the first worker connects.
            days: The ledgers that count requests or tokens per day, by limit. A limit that is not
                listed has no maximum per day.
            late_s: A function that returns the initial estimate of how late requests are sent.
            budgets: Counts the money spent; None if there is no budget.
            shared: The rows that hosts share. A row is one number of a limit, such as its `qps`,
                identified by the limit's name and the kind. No lease is granted on these rows
                before the first call of `share`.

        Raises:
            ValueError: There is no counter for a shared row.
        """
        self._known = tuple(known)
        self._wakes = TimerQueue()
        self._table = LaneTable(
            pool,
            self._wakes,
            random.Random(seed),
            episode_timeout_s=episode_timeout_s,
            wait_for_servers_s=wait_for_servers_s,
            days=days or {},
            late_s=late_s,
            budgets=budgets,
            shared=shared,
        )
        self._news = NoticeBook(self._table)
        self._groups = GroupBook(self._wakes, self._table.look_at)
        self._homes = Homes(self._table.lanes, self._wakes, self._table.look_at)
        self._workers: dict[str, WorkerState] = {}
        # Workers by the time of their last granted opening request, the oldest in front.
        self._rotation: OrderedDict[str, WorkerState] = OrderedDict()
        self._parking: dict[InstanceState, None] = {}
        self._scheduler = Scheduler(self._table, self._groups, self._rotation)
        self._now_s = -math.inf
        self._n_requests = 0
        self._taken: set[str] = set()
        self.trouble = ""
        self.shares: list[ShareStatus] = []
        self.notes: list[str] = []

    def handle(
        self, who: str, message: wire.ClientMessage, now_s: float
    ) -> tuple[wire.Answer | None, list[Action]]:
        """Carry out a client's message.

        Args:
            who: The worker that sent the message; empty for the controller.
            message: The message, except for `Hello`, which `connect` handles.
            now_s: The current time, in monotonic seconds.

        Returns:
            The answer to the message (None if the sender expects no answer), and the actions for
            other receivers.

        Raises:
            ValueError: The message does not fit the state of the worker's requests.
        """
        # Check for the two messages of every request first, without `match`, which is slower.
        if isinstance(message, wire.Release):
            return None, self.release(
                who, message.lease_id, message.outcome, message.feedback, now_s
            )
        if isinstance(message, wire.Acquire):
            return None, self.request(who, message.request, now_s)
        answer: wire.Answer | None = None
        actions: list[Action] = []
        match message:
            case wire.EpisodesOver(case_ids):
                actions = self.episodes_ended(who, case_ids, now_s)
            case wire.Pay(lease_id, most):
                is_paid, actions = self.pay(who, lease_id, most, now_s)
                answer = wire.Paid(is_paid)
            case wire.SentLate(lease_id, late_s):
                actions = self.sent_late(who, lease_id, late_s, now_s)
            case wire.Withdraw(request_id):
                actions = self.withdraw(who, request_id, now_s)
            case wire.AskStatus():
                answer = wire.StatusNow(self.status(now_s))
            case wire.HoldClaims(until_s, taken, again):
                actions = self.hold_claims(until_s, taken, again, now_s)
            case wire.Assign(assignment):
                try:
                    actions = self.assign(assignment, now_s)
                    answer = wire.Assigned(None)
                except ConfigError as error:
                    answer = wire.Assigned(str(error))
        return answer, actions

    def connect(self, worker: str, now_s: float) -> list[Action]:
        """Add a worker.

        Raises:
            ValueError: A worker with that name is already connected.
        """
        now_s = self._advance(now_s)
        if worker in self._workers:
            raise ValueError(
                f"a worker named {worker!r} is already connected; names must be unique"
            )
        if math.isinf(self._table.started_s):
            self._table.look_at_days(now_s)
        self._table.started_s = min(now_s, self._table.started_s)
        for one in self._known:
            self._table.know(one, now_s)
        self._known = ()
        state = WorkerState(worker, self._homes.home_of(worker))
        self._workers[worker] = self._rotation[worker] = state
        # Put the worker in front: a worker that connects late, such as the replacement of a dead
        # worker, has had the fewest leases.
        self._rotation.move_to_end(worker, last=False)
        return self._finish(now_s)

    def request(self, worker: str, request: LeaseRequest, now_s: float) -> list[Action]:
        """Request a lease. The broker grants or refuses it now or later.

        Raises:
            ValueError: The worker is not connected, or a request with that id is already waiting.
        """
        now_s = self._advance(now_s)
        state = self._worker(worker)
        if request.request_id in state.waiting or request.request_id in state.parked:
            raise ValueError(
                f"request {request.request_id} of {worker} is already waiting; ids must be unique"
            )
        state.trying.discard(request.case_id)
        self._table.asks(request.case_id)
        if not state.has_spoken:
            state.has_spoken = True
            self._homes.arrived(worker, now_s)
        if request.case_id in self._taken:
            self._refuse_taken(state, request)
            return self._finish(now_s)
        waiting = self._admit(state, request, now_s)
        if waiting is None:
            return self._finish(now_s)
        group = waiting.group
        is_gated = waiting.opens and group is not None and not group.admits
        is_settled = not (is_gated or self._table.changed) and now_s < self._table.claims_until_s
        if is_settled and self._scheduler.serve_at_once(waiting, now_s):
            return self._finish(now_s)
        self._scheduler.enqueue(waiting)
        if is_gated and group is not None:
            self._groups.refresh(group, now_s)
        elif is_settled:
            self._scheduler.watch(waiting, now_s)
        else:
            self._table.look_at(waiting.lane_set.lanes)
        return self._finish(now_s)

    def withdraw(self, worker: str, request_id: int, now_s: float) -> list[Action]:
        """Withdraw a waiting request. Does nothing if the request is not waiting."""
        now_s = self._advance(now_s)
        state = self._worker(worker)
        waiting = state.waiting.get(request_id)
        if waiting is not None:
            self._leave(waiting, now_s)
        self._unpark(state, request_id)
        return self._finish(now_s)

    def release(
        self, worker: str, lease_id: int, outcome: LeaseOutcome, feedback: Feedback, now_s: float
    ) -> list[Action]:
        """Give a lease back. Does nothing if the worker does not hold it.

        A lease that is not given back ends automatically when its request can no longer be in
        flight. Sends that were counted against a rate stay counted, regardless of the outcome.
        """
        now_s = self._advance(now_s)
        state = self._worker(worker)
        held = state.leases.pop(lease_id, None)
        if held is None:
            return self._finish(now_s)
        lane = held.lane
        if (feedback.is_own or outcome in COUNTED) and held.request.case_id in state.open_cases:
            state.trying.add(held.request.case_id)
        lane.terms.end(lease_id)
        lane.outcomes[outcome] += 1
        lane.left_out.update(feedback.left_out)
        if feedback.is_cut:
            lane.cut = (lane.cut[0] + 1, max(lane.cut[1], feedback.tokens_out or 0))
        if outcome in ANSWERED:
            self._table.answered(held, now_s)
        self._table.progress.came_back(held, outcome, now_s)
        if feedback.late_s is not None:
            for headroom in lane.headrooms:
                headroom.saw(held.behind_s + feedback.late_s)
        if held.probes is not None:
            _end_probe(held.probes, outcome, now_s)
        effective = outcome
        if held.is_check:
            self._table.end_check(lane, now_s)
            effective = lane.health.refusal_check.checked(outcome, feedback.words)
        lane.n_refused += outcome in OWN and not feedback.is_own
        pending = lane.in_flight - 1
        is_busy = feedback.is_wordless and _is_busy(lane.instance, outcome, pending, now_s)
        effective = "cancelled" if feedback.is_own else "congestion" if is_busy else effective
        if effective == "congestion" and feedback.exceeded == "in_flight" and not pending:
            # The lane's only request found a closed port: the server is not busy, it is gone.
            effective = "connect"
        # Update the estimate first: if that reduces the limit, the lane hardly needs a pause.
        pause_s = self._observe(held, effective, feedback, now_s)
        verdict = lane.health.decide(
            effective,
            feedback.retry_after_s,
            held.granted_s,
            now_s,
            pending,
            pause_s=pause_s,
            request=None if held.is_check or not held.request.case_id else held.request,
            words=feedback.words,
        )
        if verdict is not None:
            self._news.decided(lane, verdict, effective, feedback)
            self._table.apply(lane, verdict, now_s)
        if held.reserved:
            self._table.look_at(settle(held.reserved, outcome, feedback, now_s))
        if held.units:
            self._table.settle_money(lease_id, held, outcome, feedback)
        self._table.give_back(lane)
        return self._finish(now_s)

    def pay(
        self, worker: str, lease_id: int, most: TokenBounds, now_s: float
    ) -> tuple[bool, list[Action]]:
        """Reserve the cost of a lease's request, which was not known when the lease was granted.

        Args:
            worker: The worker that holds the lease.
            lease_id: The lease.
            most: The maximum number of tokens that the request may use. Its cost follows from it.
            now_s: The current time, in monotonic seconds.

        Returns:
            Whether there was enough money (if not, send no request on this lease), and the actions
            for other receivers.
        """
        now_s = self._advance(now_s)
        held = self._worker(worker).leases.get(lease_id)
        is_paid = held is not None and self._table.pay(lease_id, held, most)
        return is_paid, self._finish(now_s)

    def sent_late(self, worker: str, lease_id: int, late_s: float, now_s: float) -> list[Action]:
        """Report that a request was sent `late_s` after its grant.

        If the delay is longer than expected, the next sends are postponed. Call this when the
        request is sent. Does nothing if the worker does not hold the lease.
        """
        now_s = self._advance(now_s)
        held = self._worker(worker).leases.get(lease_id)
        if held is not None:
            held.sent_late(late_s)
        return self._finish(now_s)

    def episodes_ended(self, worker: str, case_ids: Iterable[str], now_s: float) -> list[Action]:
        """Report that cases need no more leases. Idempotent. The controller may also call this."""
        now_s = self._advance(now_s)
        state = self._workers.get(worker)
        for case_id in case_ids:
            self._table.case_ended(case_id)
            if state is not None:
                self._close_episode(state, case_id, now_s)
            self._groups.end_case(case_id, now_s)
        return self._finish(now_s)

    def disconnect(self, worker: str, now_s: float) -> list[Action]:
        """Remove a worker: drop its requests, take its leases back and close its episodes.

        Each of its seats becomes free after the lane's `orphan_grace_s`. Does nothing if the worker
        is not connected.
        """
        now_s = self._advance(now_s)
        state = self._workers.pop(worker, None)
        if state is None:
            return self._finish(now_s)
        for waiting in list(state.waiting.values()):
            self._leave(waiting, now_s)
        for request_id in list(state.parked):
            self._unpark(state, request_id)
        for lease_id, held in state.leases.items():
            held.lane.terms.end(lease_id)
            if held.probes is not None:
                held.probes.probe_lost(now_s)
            if held.is_check:
                self._table.end_check(held.lane, now_s)
                held.lane.health.refusal_check.is_being_checked = False
            # The worker may have died after a late send and before it reported the delay.
            late_s = now_s - held.granted_s
            if late_s <= held.lane.send_by_s(0.0):
                held.sent_late(late_s)
            self._table.orphan(held.lane, now_s)
            verdict = held.lane.health.decide("lost", None, held.granted_s, now_s)
            if verdict is not None:
                self._table.apply(held.lane, verdict, now_s)
        self._table.cases_lost(state.open_cases)
        for case_id in list(state.open_cases):
            self._close_episode(state, case_id, now_s)
        del self._rotation[worker]
        self._homes.departed(worker, now_s)
        return self._finish(now_s)

    def assign(self, assignment: Assignment, now_s: float) -> list[Action]:
        """Apply an assignment. It may replace an earlier one.

        A later assignment changes the rules, but not cases that are open or have ended.
        `start_after_s` counts from the first assignment.

        Raises:
            ConfigError: This pool does not allow the assignment. The earlier one stays in effect.
        """
        check_assignment(assignment, self._table.lanes)
        now_s = self._advance(now_s)
        self._homes.assign(assignment.home, now_s)
        for state in self._workers.values():
            state.home = self._homes.home_of(state.name)
        for group in self._groups.assign(assignment, now_s):
            for line in list(group.lines):
                self._scheduler.refuse(line, no_such_group(group.name))
        self._table.look_at(self._table.lanes.values())
        return self._finish(now_s)

    def share(
        self,
        shares: Mapping[tuple[str, str], int],
        until_s: float,
        now_s: float,
        most: Mapping[tuple[str, str], float] | None = None,
    ) -> list[Action]:
        """Allow these shares of the shared rows until `until_s`, and nothing after that.

        A row whose share is missing or 0 is closed: no lease is granted on it, requests in flight
        continue, and waiting requests stay in the queue. If a share shrinks, no lease is taken
        back, but a lease that is not used by `until_s` ends (`Lease.ends_s`). Shares are in whole
        units (`shares.declared_row`). For counted rows (`rpd`, `tpd`, `budget`), the share is the
        number of units that may still be spent after this call. The ledger computed this number
        from a snapshot. So before you call this, subtract the amount by which `HeldUnits.spent` has
        grown since the snapshot.

        Args:
            shares: Units, by limit and kind.
            until_s: When the shares end, on this host's monotonic clock.
            now_s: The current time, in monotonic seconds.
            most: For counted rows: the units that no host has spent. A request that needs more
                waits for the next day or is refused, just as if a single host had used up the daily
                quota or the money.

        Raises:
            ValueError: A row is not shared, or a share is not a whole number >= 0. In both cases no
                share is changed.
        """
        now_s = self._advance(now_s)
        self._table.set_shares(shares, until_s, now_s, most)
        return self._finish(now_s)

    def hold_claims(
        self, until_s: float, taken: Collection[str], again: Collection[str], now_s: float
    ) -> list[Action]:
        """Set the time at which this host's claims on cases end.

        After that time, no lease is granted until this method is called again, because other hosts
        may have taken over the cases. Before the first call all cases belong to this host. Requests
        in flight continue. A lease that is not used by `until_s` ends (`Lease.ends_s`).

        Args:
            until_s: When this host's claims end, on its monotonic clock.
            taken: Ids of cases that other hosts have taken over. Requests of these cases are
                refused.
            again: Ids of cases that other hosts had taken over, but that belong to this host again.
            now_s: The current time, in monotonic seconds.
        """
        now_s = self._advance(now_s)
        self._table.claims_until_s = until_s
        self._taken.difference_update(again)
        self._taken.update(taken)
        for worker in self._workers.values() if taken else ():
            for waiting in list(worker.waiting.values()):
                if waiting.request.case_id in self._taken:
                    self._leave(waiting, now_s)
                    self._refuse_taken(worker, waiting.request)
            for request_id, budget in list(worker.parked.items()):
                request = budget.parked[worker.name, request_id].request
                if request.case_id in self._taken:
                    self._unpark(worker, request_id)
                    self._refuse_taken(worker, request)
        return self._finish(now_s)

    def _refuse_taken(self, worker: WorkerState, request: LeaseRequest) -> None:
        why = "another host has taken over this case, because this host did not report in time"
        self._refuse(worker, request, why, TAKEN)

    def holdings(self, now_s: float) -> dict[Row, HeldUnits]:
        """How many units of each shared row this host still holds.

        The sum of all hosts' holdings, plus new grants, must never exceed the number of units in
        the row.
        """
        return self._table.holdings(max(now_s, self._now_s))

    def wants(
        self,
        now_s: float,
        unclaimed: Mapping[str, int],
        bears: Mapping[LaneId, float] | None = None,
        in_groups: Mapping[str, int] | None = None,
    ) -> HostDemand:
        """The units and cases that this host could use now.

        Args:
            now_s: The current time, in monotonic seconds.
            unclaimed: For each model: how many cases without a group any host could claim now.
            bears: The maximum number of requests in flight that this host's client can handle, by
                lane. A lane that is not listed has no maximum.
            in_groups: For each group: how many of its cases any host could claim now.
        """
        now_s = max(now_s, self._now_s)
        groups = {one: (in_groups or {}).get(one.name, 0) for one in self._groups.states()}
        workers = self._workers.values()
        return wants_of(self._table, workers, unclaimed, bears or {}, now_s, groups=groups)

    @property
    def has_news(self) -> bool:
        """Whether there is urgent news for `take_notices` to return."""
        return self._news.is_fresh

    def take_notices(self, now_s: float) -> list[LaneNotice]:
        """Return this host's news about keys, instances and lanes since the last call.

        News of removals is returned again from time to time.
        """
        return self._news.take(max(now_s, self._now_s))

    def apply_notices(self, news: Iterable[LaneNotice], now_s: float) -> list[Action]:
        """Apply the news of another host. Repeated news has no effect."""
        now_s = self._advance(now_s)
        self._news.apply_notices(news, now_s)
        return self._finish(now_s)

    def tick(self, now_s: float) -> list[Action]:
        """Let time pass. Call this at `next_wake_s()`. Calls at other times are harmless."""
        return self._finish(self._advance(now_s))

    def next_wake_s(self) -> float | None:
        """When to call `tick`, unless another call comes first; None if no call is necessary."""
        return self._wakes.next_s()

    def status(self, now_s: float) -> BrokerStatus:
        """A snapshot of all counts. Until the next `tick`, it may show a pause that has ended."""
        now_s = max(now_s, self._now_s)
        held = [lease for state in self._workers.values() for lease in state.leases.values()]
        under_way_s = dict.fromkeys(self._table.lanes.values(), 0.0)
        for lease in held:
            under_way_s[lease.lane] += now_s - lease.granted_s
        return BrokerStatus(
            now_s=now_s,
            in_flight=self._table.in_flight,
            peak_in_flight=self._table.peak,
            open_episodes=sum(len(one.open_cases) for one in self._workers.values()),
            ended_episodes=len(self._groups.ended),
            lanes=[lane.status(now_s, seconds) for lane, seconds in under_way_s.items()],
            waiting=sum(len(one.waiting) + len(one.parked) for one in self._workers.values()),
            trying=sum(len(one.trying) for one in self._workers.values()),
            models=self._table.progress.status(held, now_s),
            room=self._table.room() if self._table.shared else None,
            trouble=self.trouble,
            groups=self._progress_of_groups() if self._table.shared else [],
            shares=self.shares,
            notes=self.notes,
        )

    def _progress_of_groups(self) -> list[GroupProgress]:
        found = []
        for group in self._groups.states():
            if group.rule is not None:
                ended = len(group.rule.cases) - group.n_left
                room = room_on(self._table.lanes_of(group.rule))
                found.append(GroupProgress(group.name, group.n_open + ended, ended, room))
        return found

    def load_reported(
        self, provider: str, instance: str, load: ServerLoad, now_s: float
    ) -> list[Action]:
        """Apply a server's report about its queue.

        The report affects only estimated limits that no other instance shares.
        """
        now_s = self._advance(now_s)
        self._table.load_reported(provider, instance, load, now_s)
        return self._finish(now_s)

    def close(self, now_s: float) -> None:
        """End the run, and give back units that were taken from daily limits but not used."""
        self._table.close(max(now_s, self._now_s))

    def take_changes(self) -> list[LimitChange]:
        """Return the changes to estimated limits since the last call, oldest first."""
        return self._table.take_changes()

    def take_pauses(self) -> list[LanePause]:
        """Return the lane pauses that ended since the last call, sorted by their start times."""
        return self._table.take_pauses()

    def _advance(self, now_s: float) -> float:
        now_s = self._now_s = max(now_s, self._now_s)
        # Handle due wakes before the new event. Otherwise a request could wait for a lane whose
        # pause is already over.
        while (wake := self._wakes.pop_due(now_s)) is not None:
            wake.due(now_s)
        return now_s

    def _finish(self, now_s: float) -> list[Action]:
        # Refuse requests here and not when lanes are removed: a request that is being withdrawn
        # must not get a refusal.
        if self._table.removed:
            self._scheduler.refuse_without_lane(now_s)
            self._refuse_parked(now_s)
        for instance in list(self._parking):
            self._let_retries_go(instance, now_s)
        if self._table.idle:
            self._refuse_parked(now_s)
        # Repeat until no lane is left: a grant or refusal that ends a reservation of tokens puts
        # the reserved lanes into `changed` again. After the claims have ended, the lanes stay in
        # `changed` until there are new claims.
        holds = now_s < self._table.claims_until_s
        while self._table.idle or (holds and self._table.changed):
            if holds:
                self._scheduler.serve(now_s)
            self._scheduler.refuse_spent(now_s)
        self._table.settle(now_s)
        actions = self._scheduler.actions
        self._scheduler.actions = []
        return actions

    def _observe(
        self, held: HeldLease, outcome: LeaseOutcome, feedback: Feedback, now_s: float
    ) -> float | None:
        """Pass a returned lease to its limit's controller. The first refusal creates a missing one.

        Returns:
            After a refusal, how many seconds the lane should pause; None means a back-off.
        """
        lane = held.lane
        if outcome in LIMITED and self._table.give_headroom(held, feedback, now_s):
            return 0.0
        if (limit := lane.counted) is None or limit.controller is None:
            if outcome not in LIMITED:
                return None
            limit = self._table.estimate(lane, held.at_grant, now_s)
        controller = limit.controller
        assert controller is not None
        is_congested = outcome == "congestion"
        if (is_congested or outcome in ANSWERED) and lane.instance.learn(
            controller.n_cuts, now_s, is_refused=is_congested
        ):
            self._table.discard_estimate(limit, now_s)
            return None
        in_flight = limit.seats.in_flight
        timeout_s = lane.lane.request_s
        controller.observe(
            Observation(
                outcome, held.granted_s, now_s, in_flight, held.at_grant, feedback, timeout_s
            )
        )
        is_over = controller.forgiven_s == now_s
        if is_over:
            # The storm of refusals is over, so its pace no longer delays sends.
            limit.pace_ready_s = -math.inf
            limit.reckon()
        if limit.adopt_cap() or is_over:
            self._table.look_at(limit.lanes)
        return controller.pause_s

    def _let_retries_go(self, instance: InstanceState, now_s: float) -> None:
        """Queue as many parked retries of an instance as its retry budget now allows.

        A retry is parked if this budget is used up when the retry is requested.
        """
        budget = instance.retries
        while (
            taken := budget.take(instance.n_requests(), now_s, is_removed=instance.is_removed)
        ) is not None:
            retry, is_probe = taken
            del retry.worker.parked[retry.request.request_id]
            waiting = self._admit(retry.worker, retry.request, now_s, parked=retry)
            if waiting is None:
                if is_probe:
                    budget.probe_over()
                continue
            waiting.probes = budget if is_probe else None
            self._scheduler.enqueue(waiting)
            self._table.look_at(waiting.lane_set.lanes)
        if not budget.parked:
            del self._parking[instance]
        elif (next_s := budget.next_probe_s) is not None:
            self._wakes.ensure(budget, next_s)

    def _refuse_parked(self, now_s: float) -> None:
        """Refuse the parked retries that no lane can serve."""
        for instance in self._parking:
            for retry in list(instance.retries.parked.values()):
                model = self._table.models[retry.request.model]
                group = self._groups.get(retry.request.group)
                lane_set = self._lane_set(model, group, retry.request, now_s)
                if why := self._scheduler.reason_unservable(
                    model.name, lane_set, retry.request, now_s
                ):
                    self._unpark(retry.worker, retry.request.request_id)
                    self._refuse(retry.worker, retry.request, *why)

    def _unpark(self, worker: WorkerState, request_id: int) -> None:
        budget = worker.parked.pop(request_id, None)
        if budget is not None:
            del budget.parked[worker.name, request_id]

    def _admit(
        self,
        worker: WorkerState,
        request: LeaseRequest,
        now_s: float,
        *,
        parked: ParkedRetry | None = None,
    ) -> Waiting | None:
        """Make a request ready to wait in a line; None if it was refused or parked.

        A request that was `parked` is not parked again.
        """
        model = self._table.models.get(request.model)
        if model is None:
            self._refuse(worker, request, no_such_model(request.model, self._table.models))
            return None
        try:
            group = self._groups.find(request.group, now_s)
        except LookupError:
            self._refuse(worker, request, no_such_group(request.group))
            return None
        lane_set = self._lane_set(model, group, request, now_s)
        lanes, futile = self._left(lane_set, request)
        if futile is None:
            lane_set = self._table.lane_set(model, lanes, now_s) if lanes else lane_set
            futile = self._scheduler.reason_unservable(model.name, lane_set, request, now_s)
        if futile is not None:
            self._refuse(worker, request, *futile)
            return None
        failed = self._table.lanes.get(request.after) if request.after is not None else None
        # All requests of a removed instance go elsewhere, so its server needs no protection.
        if failed is not None and parked is None and not failed.instance.is_removed:
            instance = failed.instance
            if not instance.retries.draw(instance.n_requests()):
                instance.retries.park(ParkedRetry(worker, request, now_s), now_s)
                worker.parked[request.request_id] = instance.retries
                self._parking[instance] = None
                return None
        self._n_requests += 1
        opens = request.opens and request.case_id not in worker.open_cases
        prefers = None
        if request.lane is not None and not opens:
            prefers = self._table.lanes.get(request.lane)
            if prefers is not None and (prefers not in lane_set.members or prefers.is_removed):
                prefers = None
        if request.refused_by:
            failed = self._table.lanes.get(request.refused_by[-1])
        if failed is not None and not opens:
            # Prefer another lane: the one that failed is likely to fail again within seconds.
            prefers = other_lane(failed, lane_set.lanes, now_s) or prefers
        prefers = self._scheduler.who_pays(prefers, lane_set, request)
        # A follow-up waits for a seat on its own lane, even if other lanes have free seats.
        waits_for = lane_set
        if prefers is not None and prefers.is_up:
            waits_for = self._table.lane_set(model, (prefers,), now_s)
        since_s = now_s if parked is None else parked.came_s
        return Waiting(
            order=self._n_requests,
            worker=worker,
            request=request,
            model=model,
            lane_set=lane_set,
            waits_for=waits_for,
            group=group,
            prefers=prefers,
            opens=opens,
            is_extra=self._table.is_extra(request.case_id),
            since_s=since_s,
            full_s=waits_for.full_s(now_s),
            shut_s=group.shut_s(now_s) if group is not None and opens else 0.0,
            parked_s=now_s - since_s,
        )

    def _lane_set(
        self, model: ModelState, group: GroupState | None, request: LeaseRequest, now_s: float
    ) -> LaneSet:
        """The lanes that may serve a request when they are up."""
        lane_set = self._lanes_of(model, group, now_s)
        if not request.is_bound:
            return lane_set
        only = [lane for lane in lane_set.lanes if lane.lane.lane_id == request.lane]
        return self._table.lane_set(model, only, now_s)

    def _left(
        self, lane_set: LaneSet, request: LeaseRequest
    ) -> tuple[Sequence[LaneState], tuple[str, str] | None]:
        """Return the lanes that may serve a request (empty means all), or why no lane may."""
        lanes: Sequence[LaneState] = ()
        if request.refused_by:
            found = next_lanes(request, lane_set.lanes, self._table.lanes)
            lanes = found or ()
            if found is None:
                return (), ("the provider refuses this request", OF_REQUEST)
        among = lanes or lane_set.lanes
        counts = request.tokens and lane_set.is_metered
        if counts and not all(lane.fits(request.tokens) for lane in among):
            # Exclude lanes whose limits are too small for the request: they would stay reserved for
            # it forever.
            lanes = [lane for lane in among if lane.fits(request.tokens)]
            if not lanes:
                return (), (too_large(request.tokens, among), NO_LANE)
        return lanes, None

    def _lanes_of(self, model: ModelState, group: GroupState | None, now_s: float) -> LaneSet:
        if group is None or group.rule is None or group.rule.lanes is None:
            if model.whole is None:
                model.whole = self._table.lane_set(model, model.lanes, now_s)
            return model.whole
        lane_set = group.sets.get(model)
        if lane_set is None:
            allowed = set(group.rule.lanes)
            lanes = [lane for lane in model.lanes if lane.lane.lane_id in allowed]
            lane_set = group.sets[model] = self._table.lane_set(model, lanes, now_s)
        return lane_set

    def _refuse(
        self, worker: WorkerState, request: LeaseRequest, reason: str, kind: str = NO_LANE
    ) -> None:
        self._scheduler.actions.append(Refusal(worker.name, request.request_id, reason, kind))

    def _leave(self, waiting: Waiting, now_s: float) -> None:
        if waiting.probes is not None:
            waiting.probes.probe_over()
        if waiting.line is not None:
            waiting.line.leave(waiting)
        if waiting.group is not None:
            self._groups.went_quiet(waiting.group, now_s)

    def _close_episode(self, worker: WorkerState, case_id: str, now_s: float) -> None:
        group = worker.open_cases.pop(case_id, None)
        worker.trying.discard(case_id)
        if group is not None:
            group.n_open -= 1
            self._groups.refresh(group, now_s)
            self._groups.went_quiet(group, now_s)

    def _worker(self, name: str) -> WorkerState:
        worker = self._workers.get(name)
        if worker is None:
            raise ValueError(f"no worker named {name!r} is connected")
        return worker


def _end_probe(budget: RetryBudget, outcome: LeaseOutcome, now_s: float) -> None:
    if outcome == "unsent" or outcome in ANSWERED:
        budget.probe_over()
    elif outcome in OF_LANE:
        budget.probe_failed(now_s)
    else:
        budget.probe_lost(now_s)


def _is_busy(instance: InstanceState, outcome: LeaseOutcome, pending: int, now_s: float) -> bool:
    """Whether a refusal without `Retry-After` is congestion, even if the worker reports otherwise.

    The worker only knows the state that the instance had when the request was sent. This state is
    out of date if the instance has answered a request recently. It is also out of date if the
    instance is still starting and may answer other requests.
    """
    may_be_answered = pending > 0 and instance.is_starting(now_s)
    is_early = outcome in {"overload", "loading"} and may_be_answered
    return instance.is_answering(now_s) or is_early
