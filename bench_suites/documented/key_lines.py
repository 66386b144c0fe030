"""What the header says of keys on which several processes of the documents meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_suites.documented.process import PART_OF, process_of
from pytest_ultrapar.plan.key_load import QPS_PER_PROCESS, key_load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar import Assignment
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case

_NAMED = 4


def key_lines(
    pool: Pool, lanes: Sequence[Lane], cases: Sequence[Case], assignment: Assignment
) -> list[str]:
    """Seed 002's sum for each key: how many processes meet there, and what they would send.

    Args:
        pool: For the limits of keys.
        lanes: All of the run.
        cases: All of the run; those of other suites than the documents' are left out.
        assignment: What the policy made of them.

    Returns:
        A line each, in the pool's order; none when no case is of the documents' phases.
    """
    own = [case for case in cases if case.suite in PART_OF]
    loads = key_load(pool, lanes, own, assignment, process_of=lambda case: process_of(case).name)
    found = []
    for load in loads:
        if not load.processes:
            continue
        named = ", ".join(load.processes[:_NAMED])
        more = len(load.processes) - _NAMED
        limit = "" if load.qps_limit is None else f" of {load.qps_limit:g}"
        found.append(
            f"load: {load.provider}/{load.key}: {load.most_at_once} at once, {load.qps:g}{limit} "
            f"QPS: {named}" + (f" and {more} more" if more > 0 else "")
        )
    if found:
        found.insert(
            0,
            "load: processes of the documents that meet on a key, at "
            f"{QPS_PER_PROCESS:g} QPS each (the limits hold over all of them)",
        )
    return found
