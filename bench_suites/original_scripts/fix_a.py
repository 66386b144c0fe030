"""Policy `serial` for the phases: one process of the scripts after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from bench_suites.original_scripts.process import cases_by_process
from pytest_ultrapar import Assignment, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.records import Case


def one_after_the_other(models: Sequence[str], cases: Sequence[Case]) -> Assignment:
    """Each process waits for the one before it, so no key has more than one.

    Source: seed 002, fix A (`wait` after each process). Its order of processes differs: all models
    of a difficulty come first there. The load of a key is the same.

    Args:
        models: The pool's, in the order in which they run.
        cases: All of the run, of the phases only.

    Raises:
        ConfigError: As `process_of`.
    """
    processes = cases_by_process(models, cases)
    before = {late.name: (early.name,) for early, late in pairwise(processes)}
    return Assignment(
        groups=tuple(
            Group(process.name, own, after=before.get(process.name, ()))
            for process, own in processes.items()
        )
    )
