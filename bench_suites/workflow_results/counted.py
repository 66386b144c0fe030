"""What is counted: the runs' own cases, and those that stand for cells that they did not ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_suites.workflow_results.bench_case import BenchCase
from bench_suites.workflow_results.merge import check_kinds, each_once, merge
from bench_suites.workflow_results.phase import PHASE_53
from bench_suites.workflow_results.run_cases import RunCases
from pytest_ultrapar.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Counted:
    """Cases, and which of them stand for what.

    Attributes:
        cases: What the runs planned themselves, each once.
        taken: For each suite the cases that stand for those it did not ask: of another suite in
            `cases`, or of the run that was reused. Each once.
        reference: Cases of the reused run that 5.3 compares itself with. It never asks such itself,
            so that it cannot take them; no table or aggregate of another phase has them.
    """

    cases: tuple[BenchCase, ...]
    taken: Mapping[str, tuple[BenchCase, ...]] = field(default_factory=dict)
    reference: tuple[BenchCase, ...] = ()

    def answers(self) -> list[BenchCase]:
        """What the aggregate counts: the runs' own cases and the taken ones, each once."""
        return each_once([*self.cases, *(case for each in self.taken.values() for case in each)])


def counted(runs: Sequence[RunCases], reused: RunCases | None = None) -> Counted:
    """The cases of the runs, and of a reused run those only that the first one took from it.

    A case that a run planned itself is never replaced by one of the reused run: what is `infra`
    stays so.

    Args:
        runs: At least one; put together as `merge` does.
        reused: The run that --ultrapar-reuse named in the first of them.

    Raises:
        ConfigError: Some answers are simulated and others real, or the first run reused another
            run or none.
    """
    first = runs[0]
    if reused is not None:
        check_kinds([first, reused])
        if first.reused != reused.directory.resolve().name:
            said = f"run {first.reused}" if first.reused is not None else "no run"
            msg = f"{first.run_id} reused {said}, and not {reused.directory}"
            raise ConfigError(msg)
    cases = merge(runs)
    by_id = {case.case_id: case for case in cases}
    earlier = {case.case_id: case for case in reused.cases} if reused is not None else {}
    taken: dict[str, dict[str, BenchCase]] = {}
    for run in runs:
        for each in run.taken:
            found = taken.setdefault(each.suite, {})
            for case_id in each.here:
                if case_id in by_id:
                    found[case_id] = by_id[case_id]
            for case_id in each.reused:
                case = by_id.get(case_id) or (earlier.get(case_id) if run is first else None)
                if case is not None:
                    found[case_id] = case
    return Counted(
        tuple(cases),
        {suite: tuple(found.values()) for suite, found in taken.items()},
        _reference(cases, [case for case in earlier.values() if case.case_id not in by_id]),
    )


def _reference(cases: Sequence[BenchCase], earlier: Sequence[BenchCase]) -> tuple[BenchCase, ...]:
    """What 5.3 compares itself with in the reused run: the same repetitions, and no others."""
    asked = {
        (PHASE_53.conditions(case), case.repeat) for case in cases if case.suite == PHASE_53.suite
    }
    return tuple(
        case
        for case in earlier
        if case.measured
        and PHASE_53.is_reference(case)
        and (PHASE_53.conditions(case), case.repeat) in asked
    )
