"""The serial sample of a run: cases that run first, one at a time, to measure the speed-up."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.coordinator.policies import one_at_a_time
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.report.text import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_ultrapar.pool.model import Lane
    from pytest_ultrapar.records import Case


_SAMPLE = "--ultrapar-baseline"
"""The name of the sample's group. No policy uses this name."""
_MEASURED = "after --ultrapar-baseline"
"""The name of the group for all cases that the policy leaves without a group."""


def draw_sample(cases: Sequence[Case], n: int, seed: int) -> tuple[str, ...]:
    """Draw `n` random cases and return their ids; the order of `cases` does not matter.

    Each case has a number that depends only on its id and the seed. The cases with the smallest
    numbers are drawn, so a larger sample contains every smaller one.

    Args:
        cases: All cases that are about to run.
        n: Size of the sample, >= 1.
        seed: Seed of the run.

    Raises:
        ConfigError: There are at most `n` cases, so no case would be left to compare with.
    """
    if n >= len(cases):
        refuse(
            f"--ultrapar-baseline {n}: this run has only {counted(len(cases), 'case')}. The sample "
            "needs other cases to compare with; choose a smaller sample, leave out the option, or "
            "run all cases in each mode with `ultrapar bench --modes serial,ultra`"
        )
    ids = sorted(
        (case.case_id for case in cases if not case.stage),  # cases with a stage wait for others
        key=lambda case_id: sha256(f"baseline:{seed}:{case_id}".encode()).digest(),
    )
    return tuple(ids[:n])


def with_serial_sample(
    assignment: Assignment, cases: Sequence[Case], lanes: Sequence[Lane], sample: Collection[str]
) -> Assignment:
    """Put the sample first in the assignment, with one episode at a time as in mode `serial`.

    All other cases keep their rules, but wait until the sample's last episode has ended. The delays
    of groups count only from then on. All cases without a group are put into one new group, so that
    they also wait.

    Args:
        assignment: The policy's assignment, which is valid.
        cases: All cases that are about to run.
        lanes: The lanes of the run.
        sample: Ids of the cases in the sample.
    """
    drawn = set(sample)
    serial = one_at_a_time(lanes, [case for case in cases if case.case_id in drawn], rotates=False)
    groups = [
        msgspec.structs.replace(
            group,
            cases=tuple(case_id for case_id in group.cases if case_id not in drawn),
            after=(_SAMPLE, *group.after),
        )
        for group in assignment.groups
    ]
    bound = {case_id for group in assignment.groups for case_id in group.cases} | drawn
    free = tuple(case.case_id for case in cases if case.case_id not in bound)
    if free:
        # Dispatch these cases before cases of other groups, as in a run without a sample.
        groups.insert(0, Group(_MEASURED, free, after=(_SAMPLE,)))
    first = msgspec.structs.replace(serial, name=_SAMPLE)
    return Assignment(home=assignment.home, groups=(first, *groups))
