"""How many processes meet on each key, and what they would send: the documents' sum by hand."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pytest_ultrapar.lanes.assignment import Assignment, Group
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool
    from pytest_ultrapar.records import Case

QPS_PER_PROCESS = 2
"""Requests per second of one process to one key, one for each of its workers at most.

Source: seed 002, "4 processes x 2 QPS = 8 QPS"; seed 000, "only 1 worker each = 4 QPS" of four
processes.
"""

_FREE = ""
"""Stands for the cases that no group binds."""


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """What falls on one key.

    Attributes:
        name: `provider/key`, all its names where the pool lists it more than once.
        processes: Names of all processes that may use the key, in the order of their first cases.
        most_at_once: How many of them the assignment lets run at the same time.
        qps: The most that processes which run at the same time would send per second, if the key
            had no rate of its own.
        qps_limit: The key's own bound, None where it has none.
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
    """The load of each key under an assignment, in the order of the pool file.

    Exact as to which groups wait for each other; groups of one `exclusive` word are taken in the
    order in which they can come. Delays are left out: what starts 15 s later runs at the same time.
    A process has the seats that the pool gives its lanes on the key.

    Args:
        pool: For the limits of keys.
        lanes: All lanes of the run.
        cases: All cases of the run.
        assignment: What a policy made of them. Homes do not bind a case, so they do not count.
        process_of: Name of the process that would run a case, such as model and difficulty.
    """
    group_of = {case_id: group for group in assignment.groups for case_id in group.cases}
    lane_ids = {group.name: frozenset(group.lanes or ()) for group in assignment.groups}
    shares: dict[str, dict[tuple[str, str], dict[LaneId, Lane]]] = {
        lane.key_name: {} for lane in lanes
    }
    by_model: dict[str, list[Lane]] = {}
    for lane in lanes:
        by_model.setdefault(lane.model, []).append(lane)
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
        # One entry for each request per second: the heaviest set instead of the largest.
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
    """By group, all groups that have ended when it starts."""
    direct = {group.name: set(group.after) for group in groups}
    word_of = {group.name: group.exclusive for group in groups}
    last: dict[str, str] = {}
    found: dict[str, frozenset[str]] = {_FREE: frozenset()}
    for name in TopologicalSorter(direct).static_order():
        near = set(direct[name])
        word = word_of[name]
        if word is not None:
            near |= {last[word]} if word in last else set()
            last[word] = name
        found[name] = frozenset(near).union(*(found[one] for one in near))
    return found


def _most_at_once(groups: Sequence[str], before: Mapping[str, AbstractSet[str]]) -> int:
    """The most of these, one entry per process, of which none waits for another.

    By Dilworth's theorem that is their number less the size of a largest matching of entries to
    entries that come after them.
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
