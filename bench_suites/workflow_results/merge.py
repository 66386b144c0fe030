"""Combines the cases of several runs, each case once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from bench_suites.workflow_results.bench_case import BenchCase
from bench_suites.workflow_results.run_cases import RunCases
from pytest_ultrapar.errors import ConfigError


def merge(runs: Sequence[RunCases]) -> list[BenchCase]:
    """All cases of the runs, in their order.

    If several runs contain a case (the same cell, repetition and run seed), it counts once: from
    the first run that measured it.

    Raises:
        ConfigError: Some answers are simulated and others real.
    """
    check_kinds(runs)
    return each_once(case for run in runs for case in run.cases)


def check_kinds(runs: Sequence[RunCases]) -> None:
    """Check that the answers of all runs are simulated, or all are real.

    Raises:
        ConfigError: Some answers are simulated and others real.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.simulated != first.simulated:
            said = {True: "simulated", False: "real"}
            msg = (
                f"the answers of {run.run_id} are {said[run.simulated]}, but the answers of"
                f" {first.run_id} are {said[first.simulated]}; make separate tables"
            )
            raise ConfigError(msg)


def each_once(
    cases: Iterable[BenchCase], key: Callable[[BenchCase], object] = attrgetter("case_id")
) -> list[BenchCase]:
    """The cases without duplicates: for each key the first measured case, otherwise the first case.

    The chosen case takes the place of the first case with its key.

    Args:
        cases: In order of precedence.
        key: The value that duplicates share.
    """
    kept: dict[object, BenchCase] = {}
    for case in cases:
        known = kept.get(key(case))
        if known is None or (case.measured and not known.measured):
            kept[key(case)] = case
    return list(kept.values())
