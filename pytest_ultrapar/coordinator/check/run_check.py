"""`--ultrapar-check`: check the lanes that the cases need, before a run."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.lane_table import free_s
from pytest_ultrapar.coordinator.check.lane_report import counts, failures
from pytest_ultrapar.coordinator.check.pool_check import lane_answers
from pytest_ultrapar.coordinator.keys.acquire_keys import wait_until_free
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.report.text import counted, listed
from pytest_ultrapar.system.clock import MonotonicClock

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.daily_limits import DailyLimit
    from pytest_ultrapar.broker.protocol import KnownLane
    from pytest_ultrapar.coordinator.check.lane_report import LaneAnswer
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case
    from pytest_ultrapar.report.wait_notice import WaitingLine


def needed_lanes(
    lanes: Sequence[Lane],
    assignment: Assignment,
    cases: Sequence[Case],
    in_roles: Collection[str] = (),
) -> tuple[Lane, ...]:
    """Return the lanes that at least one case may use, for its model or for a role.

    The check covers all lanes of a model, even if other lanes could replace a dead one. Otherwise a
    dead key would slow down the run without any message.

    Args:
        lanes: The lanes of the run.
        assignment: The assignment, which may restrict cases to some lanes of their model.
        cases: The cases that send requests.
        in_roles: Models that have a role; the assignment does not restrict the lanes of a role.
    """
    bound_to = {
        case_id: group.lanes
        for group in assignment.groups
        if group.lanes is not None
        for case_id in group.cases
    }
    models = {case.model for case in cases if case.case_id not in bound_to}
    models.update(in_roles if cases else ())
    bound = {(case.model, lane_id) for case in cases for lane_id in bound_to.get(case.case_id, ())}
    return tuple(
        lane for lane in lanes if lane.model in models or (lane.model, lane.lane_id) in bound
    )


def check_lanes(
    pool: Pool,
    base_urls: Mapping[str, str],
    line: WaitingLine,
    days: Sequence[DailyLimit] = (),
    *,
    go_on: bool,
    wait_s: float,
) -> Generator[str, None, tuple[KnownLane, ...]]:
    """Check the lanes that cases need; at the end, or if interrupted, yield the lines to print.

    The check then waits until its own requests no longer count against the limits, because the
    run's broker does not know about them.

    Args:
        pool: The pool with only the needed lanes (`needed_lanes`); the run holds their keys.
        base_urls: Base URLs of the simulated providers that these lanes use.
        line: Shows why the check is waiting.
        days: The daily limits; the check's requests count against them.
        go_on: Whether the run continues without lanes that failed.
        wait_s: How long to wait for servers that are unavailable, in seconds.

    Returns:
        Facts that the run's broker needs: which lanes are removed or paused.

    Raises:
        ConfigError: A lane failed, and the run must not continue without it.
    """
    if not pool.lanes:
        return ()
    clock = MonotonicClock()
    began_s = clock.now_s()
    found: list[LaneAnswer] = []
    try:
        option = "--ultrapar-wait-for-servers"
        asked = lane_answers(pool, base_urls, line, days, wait_s=wait_s, option=option)
        with closing(asked) as answers:
            found.extend(answers)
    except KeyboardInterrupt:
        line.end()
        yield f"check: interrupted, {counts(pool, found)}"
        yield from (f"check: {text}" for text in failures(found))
        raise
    n_failed = sum(one.word == "failed" for one in found)
    if n_failed and not go_on:
        said = "\n".join(f"  {text}" for text in failures(found))
        refuse(
            f"--ultrapar-check: the selected cases need {counted(len(found), 'lane')}, of which "
            f"{n_failed} failed, so no case was sent:\n{said}\n"
            "fix the cause, choose other models (--ultrapar-model), remove failed lanes from the "
            "pool, or continue without them (--ultrapar-check=warn)"
        )
    yield f"check: {counts(pool, found)}"
    yield from (f"check: {text}" for text in failures(found))
    known = tuple(one.known for one in found if one.known is not None)
    removed = [one.lane_id for one in known if one.removed]
    if removed:
        yield f"check: the run continues without {listed(removed)}"
    if any(one.word in {"limited", "unsure"} for one in found):
        yield "check: limited and unsure lanes may recover; they do not stop the run"
    limits = {name: pool.limits[name] for lane in pool.lanes for name in lane.limits}
    free_at_s = free_s(limits.values(), clock.now_s())
    wait_until_free(free_at_s, "the check's requests", line, since_s=began_s, clock=clock)
    line.end()
    return known
