"""The counted cases: the cases of the runs, and the cases that the runs took from elsewhere."""

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
    """The counted cases by source.

    Attributes:
        cases: The cases that the runs planned, each once.
        taken: For each suite, the cases that it took from another suite in `cases` or from the
            reused run, instead of running them. Each case occurs once.
        reference: Cases of the reused run with which 5.3 is compared. Phase 5.3 has no
            such cells, so it cannot take them. No other table and no aggregate contains them.
    """

    cases: tuple[BenchCase, ...]
    taken: Mapping[str, tuple[BenchCase, ...]] = field(default_factory=dict)
    reference: tuple[BenchCase, ...] = ()

    def answers(self) -> list[BenchCase]:
        """The cases of the aggregate: the runs' own cases and the cases they took, each once."""
        return each_once([*self.cases, *(case for each in self.taken.values() for case in each)])


def counted(runs: Sequence[RunCases], reused: RunCases | None = None) -> Counted:
    """The cases of the runs, and the cases that the first run took from a reused run.

    A case of the reused run never replaces a case that a run planned itself: `infra` stays `infra`.

    Args:
        runs: One or more runs, which `merge` combines.
        reused: The run that --ultrapar-reuse named in the first of them.

    Raises:
        ConfigError: Some answers are simulated and others real, or the first run did not reuse
            this run.
    """
    first = runs[0]
    if reused is not None:
        check_kinds([first, reused])
        if first.reused != reused.directory.resolve().name:
            said = f"run {first.reused}" if first.reused is not None else "no run"
            msg = f"{first.run_id} reused {said}, not {reused.directory}"
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
    """The cases of the reused run with which 5.3 is compared: the cases of the same repetitions."""
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
