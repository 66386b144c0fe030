"""Puts the cases of several runs together, each case once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from bench_suites.workflow_results.bench_case import BenchCase
from bench_suites.workflow_results.run_cases import RunCases
from pytest_ultrapar.errors import ConfigError


def merge(runs: Sequence[RunCases]) -> list[BenchCase]:
    """All cases of the runs, in their order.

    A case that several runs have (the same cell, repetition and run seed) counts once: as the first
    run has it that measured it.

    Raises:
        ConfigError: Some answers are simulated and others real.
    """
    check_kinds(runs)
    return each_once(case for run in runs for case in run.cases)


def check_kinds(runs: Sequence[RunCases]) -> None:
    """Make sure that answers are simulated in all of the runs or in none.

    Raises:
        ConfigError: They are not.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.simulated != first.simulated:
            said = {True: "simulated", False: "real"}
            msg = (
                f"the answers of {run.run_id} are {said[run.simulated]} and those of"
                f" {first.run_id} {said[first.simulated]}; they do not go into one table"
            )
            raise ConfigError(msg)


def each_once(
    cases: Iterable[BenchCase], key: Callable[[BenchCase], object] = attrgetter("case_id")
) -> list[BenchCase]:
    """The cases without repetitions: of those alike the first measured, else the first.

    Each stands where the first of them came.

    Args:
        cases: In the order that decides.
        key: What cases that are alike share.
    """
    kept: dict[object, BenchCase] = {}
    for case in cases:
        known = kept.get(key(case))
        if known is None or (case.measured and not known.measured):
            kept[key(case)] = case
    return list(kept.values())
