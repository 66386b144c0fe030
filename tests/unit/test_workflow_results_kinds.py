"""The table of outcomes and kinds by phase."""

from __future__ import annotations

from dataclasses import replace

from bench_suites.workflow_results.counted import Counted
from bench_suites.workflow_results.kinds import kinds
from tests.unit.workflow_results_runs import bench_case


def of_kind(suite, outcome, kind, n):
    made = [bench_case(suite, outcome) for _ in range(n)]
    return [replace(one, result=replace(one.result, kind=kind)) for one in made]


def test_each_outcome_and_kind_has_a_row_and_each_phase_a_column():
    taken = of_kind("phase51", "solved", None, 4)
    asked = [
        *taken,
        *of_kind("phase51", "unsolved", "no_call", 2),
        *of_kind("phase54", "unsolved", "no_call", 3),
        *of_kind("phase54", "infra", "timeout", 1),
        *of_kind("phase53", "error", "ValueError", 9),
    ]
    found = Counted(tuple(asked), {"phase54": tuple(taken), "phase55": tuple(taken[:1])})
    title, _, *table = kinds(found, ["phase51", "phase54", "phase55"])
    assert title == "## Cases by outcome, kind and phase"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0] == ["outcome/kind", "5.1", "5.4", "5.5"]
    assert cells[2:] == [
        ["solved", "4", "4", "1"],
        ["unsolved/no_call", "2", "3", "0"],
        ["infra/timeout", "0", "1", "0"],
    ]
