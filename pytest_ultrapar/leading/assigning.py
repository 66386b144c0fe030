"""The assignment of a run: its mode's own, or what the hook gives, checked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_ultrapar import process
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.lanes.assignment import Assignment
from pytest_ultrapar.lanes.assignment_check import check_assignment
from pytest_ultrapar.leading.policies import one_at_a_time
from pytest_ultrapar.plan.key_load import KeyLoad, key_load

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ultrapar.pool.model import Lane
    from pytest_ultrapar.records import Case


def make_assignment(
    config: pytest.Config,
    *,
    workers: Sequence[str],
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    policy: str,
    mode: str,
) -> Assignment:
    """What a mode and a policy make of the cases.

    Args:
        config: pytest's, for the pool and the hook.
        workers: Ids of all workers.
        lanes: All lanes of the run.
        cases: All cases that are going to run.
        policy: As settled for that mode.
        mode: Any; not necessarily the one in force.

    Raises:
        ConfigError: The hook gave something that cannot be carried out.
    """
    if mode == "serial":
        return one_at_a_time(lanes, cases, lanes_per_model=1)
    if mode == "rotate":
        return one_at_a_time(lanes, cases, lanes_per_model=None)
    given = config.hook.pytest_ultrapar_assign(
        config=config,
        workers=list(workers),
        lanes=lanes,
        cases=cases,
        pool=process.settings(config)[1],
        policy=policy,
        mode=mode,
    )
    return checked(given, lanes=lanes, cases=cases)


def process_loads(
    config: pytest.Config,
    *,
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    assignment: Assignment,
    mode: str,
) -> tuple[KeyLoad, ...]:
    """The load of each key by the processes that a suite's documents had.

    Only where cases wait for each other or for a key: else all processes meet on all keys, and the
    sum says nothing. Empty there, and where no suite names processes.
    """
    if not assignment.groups or mode in {"serial", "rotate"}:
        return ()
    names = {
        case.case_id: config.hook.pytest_ultrapar_process(config=config, case=case)
        for case in cases
    }
    own = [case for case in cases if names[case.case_id] is not None]
    pool = process.settings(config)[1]
    loads = key_load(pool, lanes, own, assignment, process_of=lambda case: names[case.case_id])
    return tuple(load for load in loads if load.processes)


def checked(assignment: object, *, lanes: Sequence[Lane], cases: Sequence[Case]) -> Assignment:
    """What the hook gave, if it can be carried out.

    Raises:
        ConfigError: It cannot.
    """
    if not isinstance(assignment, Assignment):
        msg = f"pytest_ultrapar_assign must return an Assignment (got {type(assignment).__name__})"
        raise ConfigError(msg)
    known = {lane.lane_id for lane in lanes}
    ids = {case.case_id for case in cases}
    times = Counter(group.name for group in assignment.groups)
    for worker, home in assignment.home.items():
        for lane in home:
            if lane not in known:
                msg = (
                    f"pytest_ultrapar_assign: home of {worker} names lane {lane!r}; "
                    f"the run's lanes are {', '.join(sorted(known))}"
                )
                raise ConfigError(msg)
    seen: set[str] = set()
    for group in assignment.groups:
        strange = [name for name in group.after if name not in times]
        if not group.name or times[group.name] > 1:
            msg = (
                "pytest_ultrapar_assign: group names must be unique and not empty "
                f"(got {group.name!r})"
            )
            raise ConfigError(msg)
        if strange:
            msg = (
                f"pytest_ultrapar_assign: group {group.name!r} waits for {strange[0]!r}; "
                f"the groups are {', '.join(times)}"
            )
            raise ConfigError(msg)
        if not ids.issuperset(group.cases) or seen.intersection(group.cases):
            msg = (
                f"pytest_ultrapar_assign: group {group.name!r} has cases that do not run "
                "or are in another group"
            )
            raise ConfigError(msg)
        seen.update(group.cases)
    check_assignment(assignment, known)
    return assignment
