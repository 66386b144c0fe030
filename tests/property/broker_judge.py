"""An independent, slow bookkeeper for the broker: it sees all calls and actions and checks them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ultrapar.broker import wire
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.places import SOON
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback, Grant
from pytest_ultrapar.testing import BrokerPlay

if TYPE_CHECKING:
    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.pool.model import Lane, Pool


@dataclass
class Wish:
    worker: str
    request: LeaseRequest
    came_s: float
    queued_s: float
    """When it joined its line: at its arrival, or when the retry budget allowed it."""
    moves_to: Lane | None = None
    """The line in which a retry waits: the broker's choice, checked when it was made."""
    was_parked: bool = False
    is_extra: bool = False
    """Whether its case had no place when it joined its line, as the broker reported it."""


@dataclass
class Held:
    worker: str
    lane: Lane
    wish: Wish
    granted_s: float
    end_s: float


@dataclass
class Rules:
    """The rules of a group, tracked from outside."""

    has_opened: bool = False
    open: set[tuple[str, str]] = field(default_factory=set)
    predecessors_ended_s: float = math.inf


class Judge(BrokerPlay):
    """Make the broker's calls, record every action, and fail at the first that breaks a rule."""

    def __init__(self, of: Pool, assignment: Assignment, *, seed: int = 0) -> None:
        super().__init__(LaneBroker(of, seed=seed), now_s=1000.0)
        self.pool = of
        self.lanes = {one.lane_id: one for one in of.lanes}
        self.assignment = assignment
        self.groups = {group.name: group for group in assignment.groups}
        self.rules = {name: Rules() for name in self.groups}
        self.ended: set[str] = set()
        self.waiting: dict[tuple[str, int], Wish] = {}
        self.held: dict[int, Held] = {}
        self.orphans: list[tuple[float, Lane]] = []
        self.sends: dict[str, list[float]] = defaultdict(list)
        self.workers: set[str] = set()
        self.spoken: set[str] = set()
        self.first_request_s = math.inf
        self.answered_s, self.longest_s = -math.inf, 0.0
        self.ever_leased: set[int] = set()
        self.broker.assign(assignment, self.now_s)
        self._note_ends()

    # Calls -----------------------------------------------------------------------------------

    def connect(self, worker: str) -> None:
        self.workers.add(worker)
        super().connect(worker)

    def request(self, worker: str, request: LeaseRequest) -> None:
        before = set(self.waiting)
        self.waiting[worker, request.request_id] = Wish(worker, request, self.now_s, self.now_s)
        self.first_request_s = min(self.first_request_s, self.now_s)
        self.spoken.add(worker)
        wish = self.waiting[worker, request.request_id]
        actions = self.broker.request(worker, request, self.now_s)
        self._note_move(wish)
        self.book(actions, before)

    def give_back(self, lease_id: int, outcome: str, feedback: Feedback = NO_FEEDBACK) -> None:
        held = self.held.pop(lease_id)
        self.answered_s = self.now_s
        self.longest_s = max(self.longest_s, self.now_s - held.granted_s)
        self.release(held.worker, lease_id, outcome, feedback)

    def withdraw(self, worker: str, request_id: int) -> None:
        self.waiting.pop((worker, request_id), None)
        self.say(worker, wire.Withdraw(request_id))

    def end(self, worker: str, case_id: str, group: str) -> None:
        self.ended.add(case_id)
        if group:
            self.rules[group].open.discard((worker, case_id))
        self._note_ends()
        self.episode_ended(worker, case_id)

    def disconnect(self, worker: str) -> None:
        for lease_id in [n for n, held in self.held.items() if held.worker == worker]:
            lost = self.held.pop(lease_id)
            if lost.lane.orphan_grace_s > 0 and lost.end_s > self.now_s:
                self.orphans.append((self.now_s + lost.lane.orphan_grace_s, lost.lane))
        for key in [key for key in self.waiting if key[0] == worker]:
            del self.waiting[key]
        for rules in self.rules.values():
            rules.open = {(who, case) for who, case in rules.open if who != worker}
        self.workers.discard(worker)
        self.spoken.add(worker)
        super().disconnect(worker)

    def wake(self, at_s: float) -> None:
        # Nothing may become servable before the time for which the broker asked.
        self.now_s = max(self.now_s, math.nextafter(at_s, -math.inf))
        self.check_no_servable_request_waits()
        super().wake(at_s)
        self.check()

    def jump(self, by_s: float) -> None:
        """Let the clock jump, or the process sleep: the broker sees only the new time."""
        self.now_s += by_s
        self.book(self.broker.tick(self.now_s))

    # Books -----------------------------------------------------------------------------------

    def book(self, actions: list, before: set | None = None) -> None:
        came_before = set(self.waiting) if before is None else before
        left = [self.waiting.pop((action.worker, action.request_id)) for action in actions]
        queued = {key: wish for key, wish in self.waiting.items() if not self._is_parked(wish)}
        for wish in self.waiting.values():
            wish.was_parked |= self._is_parked(wish)
        for wish in [*queued.values(), *left]:
            # A retry joins its line when its instance's budget allows it.
            if wish.was_parked:
                wish.queued_s, wish.was_parked = self.now_s, False
                self._note_move(wish)
        still = [wish for key, wish in queued.items() if key in came_before]
        for action, wish in zip(actions, left, strict=True):
            if isinstance(action, Grant):
                self._book_grant(action, wish, still)
            else:
                assert action.reason
                assert not [one for one in self._allowed(wish.request) if not self._is_removed(one)]
        self.check()

    def _note_move(self, wish: Wish) -> None:
        request = wish.request
        worker = self.broker._workers.get(wish.worker)
        waiting = worker.waiting.get(request.request_id) if worker is not None else None
        if waiting is not None:
            wish.is_extra = waiting.is_extra
        if request.after is not None and waiting is not None and waiting.prefers is not None:
            wish.moves_to = waiting.prefers.lane
            others = {one.lane_id for one in self._allowed(request) if self._is_up(one)}
            assert wish.moves_to.lane_id != request.after or others <= {request.after}

    def _book_grant(self, action: Grant, wish: Wish, still: list[Wish]) -> None:
        lease, request = action.lease, wish.request
        granted = self.lanes[lease.lane]
        assert lease.lease_id not in self.ever_leased
        self.ever_leased.add(lease.lease_id)
        assert granted in self._allowed(request)
        assert lease.granted_s == self.now_s
        waited_s = self.now_s - wish.came_s
        assert lease.seat_wait_s >= 0
        assert lease.rate_wait_s >= 0
        assert lease.seat_wait_s + lease.rate_wait_s <= waited_s + 1e-6
        for name in granted.limits:
            self.sends[name].append(self.now_s)
        self.held[lease.lease_id] = Held(
            action.worker, granted, wish, self.now_s, lease.send_by_s + granted.request_s
        )
        assert lease.in_flight == self._in_flight_of_lane(granted)
        turns = [one for one in still if not one.request.opens and self._can_use(one, granted)]
        placed = [one for one in turns if not one.is_extra]
        if request.opens:
            assert not placed, (
                "an opening request was served before a follow-up that could use the same lane"
            )
            self._book_open(action.worker, request)
            home = self.assignment.home.get(action.worker)
            if home is not None and granted.lane_id not in home:
                self._judge_stealing(granted, still)
        else:
            if wish.is_extra:
                assert not placed, "a case without a place was served before a case with one"
            rivals = [one for one in turns if one.request.lane == request.lane]
            rivals = [one for one in rivals if one.is_extra == wish.is_extra]
            rivals = [one for one in rivals if one.request.group == request.group]
            in_order = all(one.queued_s >= wish.queued_s for one in rivals)
            assert in_order, "follow-ups are not served in order"

    def _book_open(self, worker: str, request: LeaseRequest) -> None:
        if not request.group:
            return
        group, rules = self.groups[request.group], self.rules[request.group]
        assert self.may_start(request.group), "a group started before its time"
        for other in self.groups.values():
            if other is not group and group.exclusive and other.exclusive == group.exclusive:
                is_running = self.rules[other.name].has_opened and set(other.cases) - self.ended
                assert not is_running, "two groups with the same `exclusive` run at the same time"
        rules.has_opened = True
        rules.open.add((worker, request.case_id))
        assert group.at_once is None or len(rules.open) <= group.at_once

    def _judge_stealing(self, stolen: Lane, still: list[Wish]) -> None:
        at_home = {who for who, home in self.assignment.home.items() if stolen.lane_id in home}
        is_early = self.now_s < self.first_request_s + 2.0
        assert not (is_early and at_home - self.spoken), (
            "stolen before its home workers made a request"
        )
        rivals = [one for one in still if self._is_home(one.worker, stolen)]
        rivals = [one for one in rivals if one.request.opens and self._is_admitted(one.request)]
        assert not [one for one in rivals if stolen in self._allowed(one.request)], (
            "stolen although a home worker could use it"
        )

    def _note_ends(self) -> None:
        for group in self.groups.values():
            cases = {case for name in group.after for case in self.groups[name].cases}
            rules = self.rules[group.name]
            if cases <= self.ended:
                rules.predecessors_ended_s = min(rules.predecessors_ended_s, self.now_s)

    # Questions -------------------------------------------------------------------------------

    def may_start(self, name: str) -> bool:
        group, rules = self.groups[name], self.rules[name]
        return self.now_s >= rules.predecessors_ended_s + group.start_after_s

    def _is_admitted(self, request: LeaseRequest) -> bool:
        """Whether the group certainly admits an opening request (`exclusive`: only if alone)."""
        if not (request.group and request.opens):
            return True
        group, rules = self.groups[request.group], self.rules[request.group]
        if not self.may_start(request.group):
            return False
        if group.at_once is not None and len(rules.open) >= group.at_once:
            return False
        for other in self.groups.values():
            if other is not group and group.exclusive and other.exclusive == group.exclusive:
                waits = any(one.request.group == other.name for one in self.waiting.values())
                if waits or self.rules[other.name].open or self.rules[other.name].has_opened:
                    return False
        return True

    def _allowed(self, request: LeaseRequest) -> list[Lane]:
        lanes = [one for one in self.pool.lanes if one.model == request.model]
        only = self.groups[request.group].lanes if request.group else None
        return [one for one in lanes if only is None or one.lane_id in only]

    def _can_use(self, wish: Wish, candidate: Lane) -> bool:
        """Whether the rules allow this lane for this wish, regardless of limits and stealing."""
        allowed = self._allowed(wish.request)
        if wish.moves_to is not None and self._is_up(wish.moves_to):
            return candidate == wish.moves_to
        wanted = self.lanes.get(wish.request.lane) if not wish.request.opens else None
        if wanted is not None and wanted in allowed and self._is_up(wanted):
            return candidate == wanted
        return candidate in allowed

    def _is_home(self, worker: str, candidate: Lane) -> bool:
        home = self.assignment.home.get(worker)
        return home is None or candidate.lane_id in home

    def _state(self, of: Lane) -> str:
        return self.broker._table.lanes[of.lane_id].status(self.now_s).state

    def _is_up(self, of: Lane) -> bool:
        return self._state(of) == "up"

    def _is_removed(self, of: Lane) -> bool:
        return self._state(of) == "out"

    def _live(self) -> list[Held]:
        """Leases in use that did not end by themselves; a hung worker still holds the rest."""
        return [held for held in self.held.values() if held.end_s > self.now_s]

    def _taken(self, name: str) -> int:
        live = sum(name in held.lane.limits for held in self._live())
        return live + sum(
            name in one.limits for until_s, one in self.orphans if until_s > self.now_s
        )

    def _is_parked(self, wish: Wish) -> bool:
        worker = self.broker._workers.get(wish.worker)
        return worker is not None and wish.request.request_id in worker.parked

    def _in_flight_of_lane(self, of: Lane) -> int:
        live = sum(held.lane == of for held in self._live())
        return live + sum(one == of and until_s > self.now_s for until_s, one in self.orphans)

    def is_free(self, candidate: Lane) -> bool:
        if not self._is_up(candidate):
            return False
        # The judge does not check how far a refusal lowers a limit: that is the controller's task.
        # A key that was refused for one model may be lowered for the others, too.
        for found in self.broker._table.lanes[candidate.lane_id].path:
            if found.controller is None:
                continue
            if found.seats.is_full or self.now_s < found.pace_ready_s:
                return False
        for limit in (self.pool.limits[name] for name in candidate.limits):
            if limit.workers is not None and self._taken(limit.name) >= limit.workers:
                return False
            for rate, window_s in ((limit.qps, 1.0), (limit.rpm, 60.0)):
                sends = self.sends[limit.name]
                # Two units in the last place as tolerance for the limiter's own rounding up.
                room_s = 4 * math.ulp(self.now_s)
                if rate is not None and sends and self.now_s < sends[-1] + window_s / rate + room_s:
                    return False
        return True

    # Invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        self.check_limits()
        self.check_probes()
        self.check_no_servable_request_waits()

    def check_limits(self) -> None:
        for limit in self.pool.limits.values():
            taken = self._taken(limit.name)
            assert limit.workers is None or taken <= limit.workers, (
                f"{limit.name}: too many in flight"
            )
            booked = self.broker._table._limits[limit.name].seats.in_flight
            assert booked == taken, f"{limit.name}: the broker counts {booked}, the judge {taken}"
            for rate, window_s in ((limit.qps, 1.0), (limit.rpm, 60.0)):
                if rate is not None:
                    check_rate(self.sends[limit.name], rate, window_s)

    def check_probes(self) -> None:
        """While a breaker is half-open, at most one request granted since is in flight."""
        for one in self.pool.lanes:
            breaker = self.broker._table.lanes[one.lane_id].health._breaker
            since = [
                held
                for held in self._live()
                if held.lane == one and held.granted_s >= breaker.until_s
            ]
            if breaker.state in {"half_open", "probing"}:
                assert len(since) <= 1, f"{len(since)} probes of {one.lane_id} at the same time"
            if breaker.state == "open":
                assert not self._is_up(one)

    def check_no_servable_request_waits(self) -> None:
        """No request waits that a free lane could serve now."""
        for wish in self.waiting.values():
            if self._is_parked(wish) or not self._is_admitted(wish.request):
                continue
            for candidate in self._allowed(wish.request):
                if not (self.is_free(candidate) and self._can_use(wish, candidate)):
                    continue
                # A seat may be reserved for a case with a place, for half an answer's time at most.
                kept_until_s = self.answered_s + SOON * self.longest_s
                waits_for_others = wish.request.opens or wish.is_extra
                if waits_for_others and self.now_s <= kept_until_s + 4 * math.ulp(self.now_s):
                    continue
                if wish.request.opens and not self._is_home(wish.worker, candidate):
                    homes = self.assignment.home.items()
                    at_home = {who for who, home in homes if candidate.lane_id in home}
                    if at_home - self.spoken and self.now_s < self.first_request_s + 2.0:
                        continue
                msg = f"{wish} waits at {self.now_s} although {candidate.lane_id} is free"
                raise AssertionError(msg)


def check_rate(sends: list[float], rate: float, window_s: float) -> None:
    """No half-open window holds more than `rate` sends (rounded up for a fractional rate)."""
    n_allowed = math.ceil(rate)
    for first, too_many in zip(sends, sends[n_allowed:], strict=False):
        assert too_many - first >= window_s, f"{n_allowed + 1} sends within {too_many - first} s"
