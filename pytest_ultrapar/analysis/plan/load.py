"""Compute the load on a pool's keys and limits, and find the limit that slows a run down most."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.pool.model import LIMIT_KINDS, Level
from pytest_ultrapar.records import Case, by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_ultrapar.broker.assignment import Assignment, Group
    from pytest_ultrapar.pool.model import Lane, LaneId, Limit, Pool


QPS_PER_PROCESS = 2
"""How many requests per second one process of the benchmark's original scripts sends to one key. If
the process has fewer seats on the key than this, it sends one request per second for each seat.

Source: script seed 002, "4 processes x 2 QPS = 8 QPS"; script seed 000, for four processes, "only 1
worker each = 4 QPS".
"""
_FREE = ""
"""The name under which all cases without a group are treated as one group."""


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """The load on one key from the processes of the suite's original scripts.

    Attributes:
        name: `provider/key`. If the pool lists the key under several names, all of them are
            included.
        processes: The names of all processes that may use the key, in the order of the processes'
            first cases.
        most_at_once: How many of these processes the assignment allows to run at the same time.
        qps: The most requests per second that processes running at the same time could send in
            total if the key had no rate limit.
        qps_limit: The key's own rate limit, if any.
    """

    name: str
    processes: tuple[str, ...]
    most_at_once: int
    qps: float
    qps_limit: float | None


def key_load(
    pool: Pool,
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    assignment: Assignment,
    *,
    process_of: Callable[[Case], str],
) -> tuple[KeyLoad, ...]:
    """Return the load that an assignment puts on each key; keys are in the order of the pool file.

    The result is exact for groups that wait for each other. Groups with the same `exclusive` lock
    are assumed to run in one of their possible orders. Delays are ignored: even a process that
    starts 15 s after another is regarded as running at the same time. On each key, a process has
    the seats of all its lanes that use the key.

    Args:
        pool: The pool with the limits of the keys.
        lanes: All lanes of the run.
        cases: All cases of the run.
        assignment: A policy's assignment of the cases. Its homes are ignored, because cases may
            also use other lanes.
        process_of: Returns the name of the process that would run a case. The name may consist of
            the case's model and difficulty, for example.
    """
    group_of = {case_id: group for group in assignment.groups for case_id in group.cases}
    lane_ids = {group.name: frozenset(group.lanes or ()) for group in assignment.groups}
    shares: dict[str, dict[tuple[str, str], dict[LaneId, Lane]]] = {
        lane.key_name: {} for lane in lanes
    }
    by_model = by_key((lane.model, lane) for lane in lanes)
    for case in cases:
        group = group_of.get(case.case_id)
        name = _FREE if group is None else group.name
        share = (name, process_of(case))
        for lane in by_model.get(case.model, ()):
            if group is None or group.lanes is None or lane.lane_id in lane_ids[name]:
                shares[lane.key_name].setdefault(share, {})[lane.lane_id] = lane
    before = _before(assignment.groups)
    loads: list[KeyLoad] = []
    for key, own in shares.items():
        most = _most_at_once([group for group, _ in own], before)
        # Make one entry for each request per second. Then the largest set is the one that sends
        # most.
        sends = [
            group
            for (group, _), used in own.items()
            for _ in range(_qps(pool.seats(tuple(used.values()))))
        ]
        names = tuple(dict.fromkeys(process for _, process in own))
        limit = _qps_limit(pool, [lane for lane in lanes if lane.key_name == key])
        loads.append(KeyLoad(key, names, most, _most_at_once(sends, before), limit))
    return tuple(loads)


def _qps(workers: int | None) -> int:
    return QPS_PER_PROCESS if workers is None else min(workers, QPS_PER_PROCESS)


def _before(groups: Sequence[Group]) -> dict[str, frozenset[str]]:
    """Return for each group all groups that must have ended before it starts."""
    direct = {group.name: set(group.after) for group in groups}
    lock_of = {group.name: group.exclusive for group in groups}
    last: dict[str, str] = {}
    found: dict[str, frozenset[str]] = {_FREE: frozenset()}
    for name in TopologicalSorter(direct).static_order():
        near = set(direct[name])
        lock = lock_of[name]
        if lock is not None:
            near |= {last[lock]} if lock in last else set()
            last[lock] = name
        found[name] = frozenset(near).union(*(found[one] for one in near))
    return found


def _most_at_once(groups: Sequence[str], before: Mapping[str, AbstractSet[str]]) -> int:
    """Return the largest number of entries whose groups can all run at the same time.

    An entry is the group of one process, or of one request per second that a process sends.

    By Dilworth's theorem, the result is the number of entries minus the size of a largest matching.
    The matching is between entries and the entries that must come after them.
    """
    after = [
        [late for late, other in enumerate(groups) if group in before[other]] for group in groups
    ]
    matched: dict[int, int] = {}

    def extends(early: int, seen: set[int]) -> bool:
        for late in after[early]:
            if late not in seen:
                seen.add(late)
                if late not in matched or extends(matched[late], seen):
                    matched[late] = early
                    return True
        return False

    return len(groups) - sum(extends(early, set()) for early in range(len(groups)))


def _qps_limit(pool: Pool, lanes: Sequence[Lane]) -> float | None:
    limits = (pool.limits[name] for lane in lanes for name in lane.limits)
    return min((x.qps for x in limits if x.level == "key" and x.qps is not None), default=None)


class Resource(msgspec.Struct, frozen=True):
    """One number of one limit, such as its `qps`: it bounds the requests that fit in `T` seconds.

    In `T` seconds, `workers` seats allow `workers x T` seconds of service, and a rate allows `per_s
    x T + burst` requests.

    Attributes:
        limit: The limit's name.
        kind: The kind of the number, such as `qps`.
        per_s: The number of seats, or the number of requests per second; > 0.
        burst: How many additional requests a rate allows. Any window may contain as many requests
            as the limit's number, rounded up. All of them may be sent at the start of the window.
    """

    limit: str
    kind: str
    per_s: float
    burst: float = 0.0

    @property
    def is_rate(self) -> bool:
        """Whether this counts requests. If not, it adds up their service times."""
        return LIMIT_KINDS[self.kind].is_rate


def resources(limits: Iterable[Limit]) -> tuple[Resource, ...]:
    """Return all numbers that can slow a run down, in the order of the limits.

    Token limits are left out. Daily limits are also left out, because they do not slow down a run
    that ends on its first day. For a longer run, the lower bound is lower without them than it
    could be, but still valid.
    """
    found = []
    for limit in limits:
        for kind, amount in limit.rows:
            if not kind.is_rate:
                found.append(Resource(limit.name, kind.word, amount))
            elif kind.is_spaced:
                # Round up: even a rate below 1 allows one request immediately, and 2.5 per window
                # allow 3.
                per_s, burst = amount / kind.window_s, math.ceil(amount)
                found.append(Resource(limit.name, kind.word, per_s, burst))
    return tuple(found)


@dataclass(slots=True)
class LaneLoad:
    """The answers that one lane gives.

    Attributes:
        requests: The number of answers.
        busy_s: The total service time of the answers, in seconds.
        tokens: The total tokens of the answers for which they are known.
    """

    requests: float = 0
    busy_s: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class LimitLoad:
    """The load on one number of one limit.

    Attributes:
        limit: The limit's name.
        level: The level of the pool at which the limit was declared.
        kind: The kind of the number, such as `qps`.
        allows: The number itself: how many seats, or how many requests or tokens per window.
        requests: The number of requests to which the limit applies.
        share: These requests as a share of all requests in the run, 0 to 1.
        alone_s: How many seconds these requests would take if only this limit slowed them down:
            seconds of service / seats, requests / rate, or tokens / rate. For a daily limit, this
            is 24 hours for each day that the requests need after the first, although no run waits
            for another day.
    """

    limit: str
    level: Level
    kind: str
    allows: float
    requests: float
    share: float
    alone_s: float

    @property
    def name(self) -> str:
        """The name to display, such as `ideallab/key0 (qps)`."""
        return f"{self.limit} ({self.kind})"


def limit_loads(
    lanes: Sequence[Lane], limits: Mapping[str, Limit], loads: Mapping[LaneId, LaneLoad]
) -> tuple[LimitLoad, ...]:
    """Return the load on each number of each limit with requests, with the slowest limit first.

    Daily limits come last, because they determine how many days are needed, not how long a run
    lasts.

    Args:
        lanes: All lanes of the run.
        limits: The pool's limits by name. A limit that does not apply to any lane has no load.
        loads: The expected or measured answers of each lane.
    """
    whole = sum(load.requests for load in loads.values())
    passing: dict[str, LaneLoad] = defaultdict(LaneLoad)
    for lane in lanes:
        if (own := loads.get(lane.lane_id)) is not None:
            for name in lane.limits:
                passing[name].requests += own.requests
                passing[name].busy_s += own.busy_s
                passing[name].tokens += own.tokens
    found = []
    for name, limit in limits.items():
        if (load := passing.get(name)) is None:
            continue
        all_asked = {"in flight": load.busy_s, "requests": load.requests, "tokens": load.tokens}
        for kind, amount in limit.rows:
            asked = all_asked[kind.counts]
            # If a run has no token counts, its tokens are unknown, not 0.
            if asked or kind.counts != "tokens":
                share, alone_s = load.requests / whole, asked * (kind.window_s or 1.0) / amount
                if kind.is_daily:
                    # All requests that a day allows may be sent at once. The others have to wait
                    # for the next day.
                    alone_s = kind.window_s * max(0, math.ceil(asked / amount) - 1)
                found.append(
                    LimitLoad(name, limit.level, kind.word, amount, load.requests, share, alone_s)
                )
    return tuple(sorted(found, key=lambda one: (LIMIT_KINDS[one.kind].is_daily, -one.alone_s)))


def longest(loads: Sequence[LimitLoad], *, within: float = 0.01) -> tuple[LimitLoad, ...]:
    """Return the limits that are about as slow as the slowest; `loads` comes from `limit_loads`."""
    return tuple(
        one for one in loads if math.isclose(one.alone_s, loads[0].alone_s, rel_tol=within)
    )


def binding(loads: Sequence[LimitLoad], *, within: float = 0.01) -> str:
    """Return the slowest limit's name and the number of others that are as slow.

    The result is `no limit` if there are no loads.
    """
    if not loads:
        return "no limit"
    top, alike = loads[0], len(longest(loads, within=within)) - 1
    return top.name + (f" and {alike} like it" if alike else "")
