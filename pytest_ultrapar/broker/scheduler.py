"""Grants free lanes to waiting requests.

A request either opens an episode (an *opening request*) or continues one (a *follow-up*). The
follow-ups of the oldest cases are served first, for as many cases as there are seats (`places`).
New cases come next, as long as few cases are open. The follow-ups of the other cases come last.

Opening requests are served in rotation, one worker after another. Workers with more leases than the
average come last. A worker's *home* is the set of lanes that it prefers (affinity). If the home
workers of a lane do not need all its seats, other workers may use them (work stealing).

`waiting.py` contains the waiting requests and the lines (queues) in which they wait. `lanes.py`
contains the lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.broker.limits import reserve, units_of
from pytest_ultrapar.broker.protocol import DAILY_QUOTA, NO_LANE, Action, Grant, Lease, Refusal
from pytest_ultrapar.broker.timers import Timer, TimerQueue
from pytest_ultrapar.broker.waiting import (
    HeldLease,
    Line,
    decide_again,
    keeps_limits,
    release_unaffordable_lanes,
)

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

    from pytest_ultrapar.broker.groups import GroupBook
    from pytest_ultrapar.broker.lane_table import LaneTable
    from pytest_ultrapar.broker.lanes import LaneSet, LaneState, ModelState
    from pytest_ultrapar.broker.limits import LimitState
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.broker.waiting import Waiting, WorkerState
    from pytest_ultrapar.pool.model import LaneId


class Scheduler:
    """Grants and refuses waiting requests, and collects the messages for workers.

    Attributes:
        actions: The grants and refusals that the broker has not collected yet.
    """

    def __init__(
        self, table: LaneTable, groups: GroupBook, rotation: OrderedDict[str, WorkerState]
    ) -> None:
        self._table = table
        self._groups = groups
        self._rotation = rotation
        self._n_leases = 0
        self.actions: list[Action] = []

    def serve_at_once(self, waiting: Waiting, now_s: float) -> bool:
        """Grant a new request at once, if a lane is free for it.

        Call this only if nothing has changed since the last `serve`: no waiting request can then
        use a free lane, so the new request does not overtake any other.
        """
        # While seats are free, most requests are served here and never join a line. From request to
        # return, this takes 13 us. If 300 requests are waiting, it takes 19 us.
        if waiting.waits_for.n_seated == 0:
            return False
        free = [lane for lane in waiting.lane_set.lanes if lane.is_free(now_s)]
        if waiting.opens or waiting.is_extra:
            free = self._table.not_kept(free, now_s)
        if waiting.opens:
            free = self._table.that_may_begin(free)
        while (lane := best_lane(waiting, free)) is not None:
            if lane.metered and keeps_limits(waiting, lane, self._table.changed, now_s):
                free.remove(lane)
                continue
            waiting.free_limits()
            self._grant(waiting, lane, now_s)
            return True
        if waiting.lane_set.is_priced:
            release_unaffordable_lanes(waiting, free, self._table.changed)
        return False

    def enqueue(self, waiting: Waiting) -> None:
        """Add a request to its line."""
        lane_set, worker, model = waiting.lane_set, waiting.worker, waiting.model
        line: Line | None
        if waiting.opens:
            # Empty lines are kept, because a worker uses the same few lines again.
            key = (lane_set, waiting.group)
            line = worker.opening_lines.get(key)
            if line is None:
                line = Line(model, lane_set, worker=worker, group=waiting.group)
                worker.opening_lines[key] = line
        else:
            # `join` adds a line of follow-ups to this dict, and `leave` removes it.
            prefers = waiting.prefers
            line = lane_set.follow_up_lines.get((prefers, waiting.is_extra))
            if line is None:
                line = Line(model, lane_set, prefers=prefers, is_extra=waiting.is_extra)
        line.join(waiting)

    def watch(self, waiting: Waiting, now_s: float) -> None:
        """Set a timer for the next send on each possible lane that only a rate limit blocks."""
        if waiting.waits_for.n_seated:
            for lane in waiting.lane_set.lanes:
                self._table.watch(lane, now_s)

    def serve(self, now_s: float) -> None:
        """Serve all requests that the changed lanes can serve, first for cases with a place."""
        decide_again(self._table.changed)
        looked_at = [lane for lane in self._table.changed if lane.model.n_waiting]
        # Clear `changed` first: if a reservation ends below, its lanes are added to it again.
        # `LaneBroker._finish` loops until it is empty.
        self._table.changed.clear()
        free = looked_at
        passed: set[Line] = set()
        # One grant per round. Lanes share limits, so each grant may take the last seat of other
        # lanes, and it changes which worker is next.
        while free := [lane for lane in free if lane.model.n_waiting and lane.is_free(now_s)]:
            by_model: dict[ModelState, list[LaneState]] = {}
            for lane in free:
                by_model.setdefault(lane.model, []).append(lane)
            waiting = next_follow_up(by_model, passed, is_extra=False)
            if waiting is None:
                by_model = {one: self._table.not_kept(by_model[one], now_s) for one in by_model}
                waiting = next_follow_up(by_model, passed, is_extra=True)
                may_begin = {
                    model: self._table.that_may_begin(lanes, few=waiting is not None)
                    for model, lanes in by_model.items()
                    if model.n_waiting > model.n_follow_ups
                }
                if opening := next_opening(self._rotation.values(), may_begin):
                    waiting, by_model = opening, may_begin
            if waiting is None:
                break
            assert waiting.line is not None
            served_by = best_lane(waiting, by_model[waiting.model])
            if served_by is None:
                release_unaffordable_lanes(waiting, by_model[waiting.model], self._table.changed)
                passed.add(waiting.line)
                continue
            if served_by.metered and keeps_limits(waiting, served_by, self._table.changed, now_s):
                # The lane is reserved for this request now, so it is not free in the next round.
                continue
            waiting.line.leave(waiting)
            self._grant(waiting, served_by, now_s)
        for lane in looked_at:
            if lane.model.n_waiting:
                self._table.watch(lane, now_s)

    def refuse(self, line: Line, reason: str) -> None:
        """Refuse all requests in a line."""
        for waiting in line.requests():
            self._refuse(waiting, reason)

    def _refuse(self, waiting: Waiting, reason: str, kind: str = NO_LANE) -> None:
        if waiting.line is not None:
            waiting.line.leave(waiting)
        if waiting.probes is not None:
            # The probe never comes back. Without this call, the budget would wait for it forever.
            waiting.probes.probe_over()
        self.actions.append(Refusal(waiting.worker.name, waiting.request.request_id, reason, kind))

    def reason_unservable(
        self, model: str, lane_set: LaneSet, request: LeaseRequest, now_s: float
    ) -> tuple[str, str] | None:
        """Why no lane in a set can serve a request, and the kind of reason.

        None if a lane may be able to serve it within the time limit of an episode.
        """
        if lane_set.n_alive == 0:
            return all_removed(model, lane_set.lanes), NO_LANE
        if not lane_set.is_spendable and self._table.budgets is None:
            return None
        timeout_s = self._table.episode_timeout_s
        # For each limit: the money that the request needs; None for a daily limit.
        found: dict[LimitState, int | None] = {}
        for lane in lane_set.lanes:
            if not lane.is_removed:
                limit = lane.spent_on(request, now_s + timeout_s, now_s)
                poor = (
                    self._table.limit_without_money(lane, request)
                    if limit is None
                    else (limit, None)
                )
                if poor is None:
                    return None
                found[poor[0]] = poor[1]
        if broken := next((one for one in found if one.day_trouble), None):
            why = f"cannot track the daily limit of {broken.name}: {broken.day_trouble}"
            # This is not `DAILY_QUOTA`: if the file is not repaired, a resume tomorrow fails, too.
            return why, NO_LANE
        for limit, units in found.items():
            if units is not None:
                assert self._table.budgets is not None
                return self._table.budgets.why_not(limit.name, units, request)
        return day_spent(found, request.tokens, timeout_s, now_s), DAILY_QUOTA

    def refuse_spent(self, now_s: float) -> None:
        """Refuse requests for which the daily limits or budgets of all lanes are used up."""
        limits, self._table.idle = self._table.idle, []
        lanes = [lane for limit in limits for lane in limit.lanes]
        # A case also waits for the money of limits that only its requests to roles use.
        self._refuse_futile(self._table.lanes.values() if self._table.short else lanes, now_s)

    def refuse_without_lane(self, now_s: float) -> None:
        """Refuse all requests for which every possible lane has been removed."""
        lanes, self._table.removed = self._table.removed, []
        self._refuse_futile(lanes, now_s)

    def _refuse_futile(self, lanes: Iterable[LaneState], now_s: float) -> None:
        for lane_set in {lane_set: None for lane in lanes for lane_set in lane.sets}:
            for line in [*lane_set.follow_up_lines.values(), *lane_set.opening_lines]:
                if lane_set.n_alive == 0:
                    # The reason lists every lane: build it only once, not for each request.
                    self.refuse(line, all_removed(line.model.name, lane_set.lanes))
                    continue
                # Check only the first request: the requests of a line are usually similar.
                while len(line) and (
                    why := self.reason_unservable(
                        line.model.name, lane_set, line.first.request, now_s
                    )
                ):
                    self._refuse(line.first, *why)
                if self._table.budgets is not None and line.prefers is not None:
                    self._leave_poor_lane(line)

    def who_pays(
        self, prefers: LaneState | None, lane_set: LaneSet, request: LeaseRequest
    ) -> LaneState | None:
        """The preferred lane; None (any lane) if only other lanes have money for the request."""
        if self._table.budgets is None or prefers is None or prefers.pays(request):
            return prefers
        is_paid = any(not lane.is_removed and lane.pays(request) for lane in lane_set.lanes)
        return None if is_paid else prefers

    def _leave_poor_lane(self, line: Line) -> None:
        """Let any lane serve follow-ups whose own lane lacks money and gets no more."""
        lane = line.prefers
        assert lane is not None
        while len(line) and not lane.pays(line.first.request):
            if any(one.purse is not None and one.seats.in_flight for one in lane.metered):
                return
            waiting = line.first
            line.leave(waiting)
            waiting.prefers, waiting.waits_for = None, waiting.lane_set
            self.enqueue(waiting)
            self._table.look_at(waiting.lane_set.lanes)

    def _grant(self, waiting: Waiting, lane: LaneState, now_s: float) -> None:
        table, worker, request = self._table, waiting.worker, waiting.request
        made_up_s = {one: one.made_up_s for one in lane.headrooms}
        held = HeldLease(lane, request, now_s, waiting.probes, made_up_s)
        if table.budgets is not None:
            if waiting.opens:
                table.budgets.cases.begin(request.case_id, lane.lane)
            held.case = table.budgets.cases.of(request.case_id)
            most = request.most
            if most is not None and not table.pay(self._n_leases + 1, held, most):
                # There is enough money, but the reservation could not be recorded. All other
                # requests that wait for money are refused, too, once no requests are in flight.
                self._refuse(waiting, table.budgets.trouble)
                return
        seat_wait_s = rate_wait_s = 0.0
        if now_s > waiting.since_s:
            seat_wait_s, rate_wait_s = _split_wait(waiting, lane, now_s)
        held.behind_s = table.take(lane, now_s)
        held.is_check = lane.health.refusal_check.is_suspect
        if not held.is_check:
            table.progress.sent(lane.model.name, request.case_id)
        self._n_leases += 1
        # The number of requests that the provider counts, over all lanes that share the limit. If
        # the provider refuses this request, the number was too high.
        held.at_grant = lane.in_flight if lane.counted is None else lane.counted.seats.in_flight
        worker.leases[self._n_leases] = held
        tokens = 0
        if lane.metered:
            tokens = request.tokens
            held.reserved = reserve(lane.metered, tokens, now_s)
        # If this host is suspended, other hosts may later use the units of its old leases.
        ends_s = table.part_ends_s(lane)
        send_by_s = min(lane.send_by_s(now_s - held.behind_s), ends_s)
        table.begin_term(lane, self._n_leases, worker, send_by_s)
        if lane.health.on_trial:
            table.begin_probe(lane, now_s, send_by_s)
        if held.is_check:
            table.begin_check(lane, now_s, send_by_s)
        if request.after is not None:
            table.count_retry(request.after, lane)
        lease = Lease(
            self._n_leases,
            lane.lane.lane_id,
            now_s,
            send_by_s,
            seat_wait_s,
            rate_wait_s,
            lane.in_flight,
            tokens,
            lane.instance.is_answering(now_s),
            lane.late_after_s(now_s - held.behind_s),
            ends_s,
            held.is_check,
            not lane.instance.has_answered(),
            lane.n_served,
            lane.n_refused,
        )
        self.actions.append(Grant(worker.name, request.request_id, lease))
        if waiting.opens:
            self._rotation.move_to_end(worker.name)
            worker.open(request.case_id, waiting.group)
            if waiting.group is not None:
                self._groups.refresh(waiting.group, now_s)
        if request.case_id in worker.open_cases:
            table.begins(request.case_id, lane)


def next_follow_up(
    free: dict[ModelState, list[LaneState]], passed: Container[Line], *, is_extra: bool
) -> Waiting | None:
    """The follow-up to serve next: the oldest one that a `free` lane can serve.

    Only cases with a place are considered (if `is_extra`, only cases without a place). A follow-up
    stays on its lane as long as the lane is up. If its lane is paused or removed, any other lane in
    its set may serve it. Lines in `passed` are skipped, because none of the free lanes can serve
    them now.
    """
    # Compare only the first requests of the lines: to check each of several thousand waiting
    # requests would take much longer than the grant.
    best: Waiting | None = None
    for model, lanes in free.items():
        if not model.n_follow_ups:
            continue
        for lane in lanes:
            for lane_set in lane.sets:
                lines = lane_set.follow_up_lines
                if not lines:
                    continue
                for prefers in (lane, None, *model.down):
                    line = lines.get((prefers, is_extra))
                    if line is None or line in passed:
                        continue
                    if best is None or line.first.order < best.order:
                        best = line.first
    return best


def next_opening(
    rotation: Collection[WorkerState], free: dict[ModelState, list[LaneState]]
) -> Waiting | None:
    """The opening request to serve next on a `free` lane.

    First the workers are searched for requests that one of their free home lanes can serve, then
    for all others. Each time, workers with more leases than the average of the waiting workers come
    last.

    Args:
        rotation: All workers. The one whose last grant of an opening request is longest ago
            comes first.
        free: Lanes that could serve a request now, by model.
    """
    workers = [worker for worker in rotation if worker.linked]
    # With rotation alone, some workers sometimes had twice as many leases as others, and so twice
    # as many connections.
    mean = sum(len(worker.leases) for worker in workers) / max(1, len(workers))
    workers.sort(key=lambda worker: len(worker.leases) > mean)
    # Two passes are necessary: in a single pass, the first worker would steal from the home of a
    # later worker that has requests for it.
    for stolen in (False, True):
        for worker in workers:
            if (best := _first_of(worker, free, stolen=stolen)) is not None:
                return best
    return None


def _first_of(
    worker: WorkerState, free: dict[ModelState, list[LaneState]], *, stolen: bool
) -> Waiting | None:
    home = worker.home
    best: Waiting | None = None
    for model, lines in worker.linked.items():
        lanes = free.get(model)
        if lanes is None:
            continue
        for line in lines:
            first = line.first
            if best is not None and best.order < first.order:
                continue
            members = line.lane_set.members
            for lane in lanes:
                is_stolen = home is not None and lane not in home
                if is_stolen is stolen and lane in members and (lane.is_stealable or not stolen):
                    best = first
                    break
    return best


def best_lane(waiting: Waiting, free: Iterable[LaneState]) -> LaneState | None:
    """The best lane to serve a request.

    If the request prefers a lane that is up, only this lane is possible. Otherwise home lanes come
    before all other lanes. Within each of these two sets, the least loaded lane comes first. If
    lanes are equally loaded, the one that has been unused for longest comes first.

    Args:
        waiting: The request.
        free: Lanes of its model that could serve a request now.

    Returns:
        The lane; None if no `free` lane may serve the request.
    """
    prefers = waiting.prefers
    if waiting.lane_set.is_priced:
        # Do not reserve a lane without the money for it: a shared budget would block all requests.
        payers = [one for one in waiting.lane_set.lanes if one.is_up and one.pays(waiting.request)]
        free = [lane for lane in free if lane in payers] if payers else free
    if prefers is not None and prefers.is_up:
        # Use only the preferred lane, even if another one is free: only this key and server have
        # the conversation so far in their prefix cache.
        return next((lane for lane in free if lane is prefers), None)
    members = waiting.lane_set.members
    home = waiting.worker.home
    best: LaneState | None = None
    best_key = (True, 0.0, 0)
    for lane in free:
        if lane not in members:
            continue
        is_stolen = home is not None and lane not in home
        if is_stolen and waiting.opens and not lane.is_stealable:
            continue
        # Compare the fraction of taken seats: a lane with 50 seats is nearly idle with five. If it
        # is equal, use the lane that has been unused for longest. Otherwise a run with few requests
        # in flight would use only the first key of the pool.
        key = (is_stolen, lane.load, lane.used_order)
        if best is None or key < best_key:
            best, best_key = lane, key
    return best


def other_lane(failed: LaneState, lanes: Iterable[LaneState], now_s: float) -> LaneState | None:
    """The best lane to retry a request that failed or was refused on another lane.

    Only lanes that are up are considered. Lanes with another key and another instance come first,
    because the key or the instance may be the cause of the failure. Both among these lanes and
    among the rest, lanes that are free now come first.

    Returns:
        The lane; None if no other lane is up.
    """

    def wish(lane: LaneState) -> tuple[bool, bool, float, int]:
        is_near = lane.instance is failed.instance or lane.lane.key_name == failed.lane.key_name
        return is_near, not lane.is_free(now_s), lane.load, lane.used_order

    others = (lane for lane in lanes if lane.is_up and lane is not failed)
    return min(others, key=wish, default=None)


def _split_wait(waiting: Waiting, lane: LaneState, now_s: float) -> tuple[float, float]:
    """Split the time that a request waited by cause, and add the parts to `waited_s` of the lane.

    Four causes are known: the retry was parked, the group could not start yet, all seats were
    taken, or the lane was reserved for its home workers. Their times are subtracted first. The
    broker never leaves a lane free while a request is waiting for it. So the rest must be due to a
    rate, a pause, or a seat that was kept for an open case.

    Returns:
        How many seconds the request waited for seats, and how many for rates, pauses, kept seats or
        the retry budget.
    """
    waited_s = now_s - waiting.since_s
    parked_s = waiting.parked_s
    if parked_s > 0:
        lane.waited_s["retry budget"] += parked_s
        waited_s -= parked_s
    if waiting.opens and waiting.group is not None:
        shut_s = min(waited_s, waiting.group.shut_s(now_s) - waiting.shut_s)
        if shut_s > 0:
            lane.waited_s["group"] += shut_s
            waited_s -= shut_s
    # Sums of differences are rounded: a wait of zero may come out as -1e-14.
    seat_wait_s = max(0.0, min(waited_s, waiting.waits_for.full_s(now_s) - waiting.full_s))
    if seat_wait_s > 0:
        lane.waited_s[lane.seat_label] += seat_wait_s
        waited_s -= seat_wait_s
    if waiting.opens and lane.stealable_s > waiting.since_s and not waiting.worker.is_home(lane):
        kept_s = min(waited_s, lane.stealable_s - waiting.since_s)
        if kept_s > 0:
            lane.waited_s["home"] += kept_s
            waited_s -= kept_s
    if waited_s > 0:
        lane.waited_s[lane.rate_label or lane.seat_label] += waited_s
    return seat_wait_s, max(0.0, waited_s) + parked_s


HOME_WAIT_S = 2.0
"""For how many seconds after the first request a lane is reserved for its home workers. Worker
processes start within a second or two of each other, and the assignment that pytest's header shows
should apply from the first request."""


class Homes(Timer):
    """The home lanes in an assignment, and which of them are still reserved for absent workers.

    It is also a timer, which is due when all these reservations end. When a lane is no longer
    reserved, it is checked again, because other workers may use it from then on.
    """

    def __init__(
        self,
        lanes: Mapping[LaneId, LaneState],
        wakes: TimerQueue,
        look_at: Callable[[Iterable[LaneState]], None],
    ) -> None:
        super().__init__()
        self._lanes = lanes
        self._wakes = wakes
        self._look_at = look_at
        self.due = self._end_home_wait
        self._homes: dict[str, frozenset[LaneState]] = {}
        self._arrived: set[str] = set()
        self._has_begun = self._is_over = False

    def assign(self, home: Mapping[str, tuple[LaneId, ...]], now_s: float) -> None:
        """Apply the homes of an assignment."""
        self._homes = {
            worker: frozenset(self._lanes[lane] for lane in lanes) for worker, lanes in home.items()
        }
        for lane in self._lanes.values():
            lane.absent.clear()
        for worker, lanes in home.items():
            if worker not in self._arrived and not self._is_over:
                for lane_id in lanes:
                    self._lanes[lane_id].absent[worker] = None
        for lane in self._lanes.values():
            # `is_stealable` is only cleared here: `_open_to_all` sets it and records the time.
            lane.is_stealable = lane.is_stealable and not lane.absent
        self._open_to_all(now_s)

    def home_of(self, worker: str) -> frozenset[LaneState] | None:
        """The home lanes of a worker; None if all lanes are its home lanes."""
        return self._homes.get(worker)

    def arrived(self, worker: str, now_s: float) -> None:
        """Record that a worker has requested its first lease."""
        if not (self._has_begun or self._is_over):
            self._has_begun = True
            self._wakes.ensure(self, now_s + HOME_WAIT_S)
        self.departed(worker, now_s)

    def departed(self, worker: str, now_s: float) -> None:
        """Record that a worker's home lanes need no longer be reserved for it."""
        self._arrived.add(worker)
        for lane in self._homes.get(worker, ()):
            lane.absent.pop(worker, None)
        self._open_to_all(now_s)

    def _end_home_wait(self, now_s: float) -> None:
        """Stop reserving lanes for workers that have not requested a lease yet."""
        self._is_over = True
        for lane in self._lanes.values():
            lane.absent.clear()
        self._open_to_all(now_s)

    def _open_to_all(self, now_s: float) -> None:
        opened = [lane for lane in self._lanes.values() if not (lane.is_stealable or lane.absent)]
        for lane in opened:
            lane.is_stealable = True
            lane.stealable_s = now_s
        self._look_at(opened)


MAX_SHOWN = 8


def no_such_model(model: str, models: Iterable[str]) -> str:
    """The error message if the pool has no lane for a model."""
    return f"the pool has no lane for the model {model!r}; it has lanes for {_shown(models)}"


def no_such_group(group: str) -> str:
    """The error message if a request names a group that is not in the assignment."""
    return f"the assignment has no group {group!r}"


def all_removed(model: str, lanes: Iterable[LaneState]) -> str:
    """The error message if all lanes for a request are removed, or if its group allows none."""
    reasons = list(dict.fromkeys(lane.reason for lane in lanes))
    if not reasons:
        return f"the case's group allows no lane for the model {model!r}"
    return f"no lane for the model {model!r} is left: {_shown(reasons, '; ')}"


def too_large(tokens: int, lanes: Iterable[LaneState]) -> str:
    """The error message if a request may use more tokens than any lane allows in one window."""
    smallest = {
        min(
            (amount, one.name, kind.word, kind.per)
            for one in lane.metered
            for kind, amount in one.declared.rows
            if kind.counts == "tokens"
        )
        for lane in lanes
    }
    most, name, word, per = max(smallest)
    return (
        f"a request may use an estimated {tokens:,} tokens, but the limit {name} allows "
        f"{most:,.0f} per {per} ({word}); lower max_tokens or raise {word}"
    )


def day_spent(limits: Iterable[LimitState], tokens: int, timeout_s: float, now_s: float) -> str:
    """The error message if the daily limits of all lanes for a request are used up."""
    soonest: tuple[float, str] | None = None
    for limit in limits:
        for kind, ledger in limit.days:
            units = units_of(kind.counts, tokens)
            wait_s = limit.day_ready_at_s(kind, ledger, units, now_s) - now_s
            if wait_s > timeout_s and (soonest is None or wait_s < soonest[0]):
                # Show a point in time, not a duration: it remains true in the results, and is the
                # same for all cases.
                more_at = ledger.free_at(units, now_s) if ledger.is_kept else _FULL_DAY
                row = f"{limit.name} ({kind.word} = {ledger.amount:,})"
                soonest = wait_s, f"the daily limit of {row} is used up; {more_at}"
    assert soonest is not None
    return soonest[1]


_FULL_DAY = "the simulated provider starts the next session with a full daily quota"


def _shown(words: Iterable[str], separator: str = ", ") -> str:
    all_words = list(words)
    cut = [f"and {len(all_words) - MAX_SHOWN} more"] if len(all_words) > MAX_SHOWN else []
    return separator.join([*all_words[:MAX_SHOWN], *cut])
