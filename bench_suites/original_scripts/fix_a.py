"""Policy `serial` for the phases: one process of the scripts at a time."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from bench_suites.original_scripts.process import cases_by_process
from bench_suites.original_scripts.waves import waves
from pytest_ultrapar import Assignment, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.records import Case


def one_after_the_other(models: Sequence[str], cases: Sequence[Case]) -> Assignment:
    """Make each process wait for the previous one, so that no key serves two processes.

    The order is the start order of mode `phase`: in 5.2, all models at one difficulty come first.
    Source: script seed 002, fix A (`wait` after each process).

    Args:
        models: The models of the pool, in the order in which they run.
        cases: All cases of the run; all belong to the phases.

    Raises:
        ConfigError: As for `process_of`.
    """
    cases_of = cases_by_process(models, cases)
    phases = groupby(cases_of, key=lambda process: process.suite)
    order = [one for _, own in phases for wave in waves(list(own), "document") for one in wave]
    before = {late: (early.name,) for early, late in pairwise(order)}
    groups = (Group(one.name, cases_of[one], after=before.get(one, ())) for one in order)
    return Assignment(groups=tuple(groups))
