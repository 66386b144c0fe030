from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bench_suites.workflow.aggregate import KEY, CaseResult, aggregate

SOLVED = CaseResult(
    model="m",
    prompt_type="optimal",
    tool_success_rate=0.8,
    difficulty="easy",
    task_type="basic_task",
    outcome="solved",
    duration_s=2.0,
    ended_at=datetime(2030, 1, 2, tzinfo=UTC),
    scores={"turns": 5, "workflow": 0.9, "assisted": 0, "assisted_turns": 0},
)
PARTIAL = replace(
    SOLVED,
    outcome="partial",
    kind="timeout",
    duration_s=4.0,
    scores={"turns": 9, "workflow": 0.6, "assisted": 1, "assisted_turns": 2},
)
UNSOLVED = replace(
    SOLVED,
    outcome="unsolved",
    kind="max_turns",
    scores={"turns": 10, "workflow": 0.0, "assisted": 1, "assisted_turns": 3},
)
INFRA = replace(SOLVED, outcome="infra", kind="timeout", duration_s=150.0, scores={})


def rows(*cases):
    return aggregate(cases)


COLUMNS = [
    "model", "prompt_type", "tool_success_rate", "difficulty", "task_type",
    "total", "success", "full_success", "partial_success", "successful", "partial", "failed",
    "success_rate", "full_success_rate", "partial_success_rate", "partial_rate", "failure_rate",
    "weighted_success_score",
    "avg_execution_time", "avg_turns", "avg_tool_calls", "tool_coverage_rate",
    "avg_workflow_score", "avg_phase2_score", "avg_quality_score", "avg_final_score",
    "total_errors", "tool_call_format_errors", "timeout_errors", "dependency_errors",
    "parameter_config_errors",
    "tool_selection_errors", "sequence_order_errors", "max_turns_errors", "other_errors",
    "tool_selection_error_rate", "parameter_error_rate", "sequence_error_rate",
    "dependency_error_rate",
    "timeout_error_rate", "format_error_rate", "max_turns_error_rate", "other_error_rate",
    "assisted_failure", "assisted_success", "total_assisted_turns", "tests_with_assistance",
    "avg_assisted_turns",
    "assisted_success_rate", "assistance_rate",
    "last_updated",
]  # fmt: skip


def test_aggregate_has_the_original_columns_in_order_and_infra():
    assert len(COLUMNS) == 51
    assert tuple(COLUMNS[:5]) == KEY
    for cell in ([SOLVED], [PARTIAL, UNSOLVED], [INFRA]):
        (row,) = rows(*cell)
        assert list(row) == [*COLUMNS, "infra"]


def test_aggregate_counts_a_partial_case_as_half():
    (row,) = rows(SOLVED, SOLVED, PARTIAL, UNSOLVED)
    counts = ("total", "success", "full_success", "partial", "failed")
    assert [row[name] for name in counts] == [4, 3, 2, 1, 1]
    assert row["success_rate"] == 0.75
    assert row["weighted_success_score"] == pytest.approx(0.625)
    assert row["full_success_rate"] + row["partial_rate"] + row["failure_rate"] == 1


def test_aggregate_averages_only_measured_cases():
    (row,) = rows(SOLVED, PARTIAL, INFRA, INFRA)
    assert row["infra"] == 2
    assert row["total"] == 2
    assert row["avg_turns"] == 7
    assert row["avg_execution_time"] == 3
    assert row["avg_workflow_score"] == pytest.approx(0.75)


def test_aggregate_gives_each_kind_a_share_of_all_errors():
    (row,) = rows(SOLVED, PARTIAL, UNSOLVED, UNSOLVED)
    assert (row["total_errors"], row["timeout_errors"], row["max_turns_errors"]) == (3, 1, 2)
    assert row["timeout_error_rate"] == pytest.approx(1 / 3)
    assert sum(value for name, value in row.items() if name.endswith("_error_rate")) == 1


def test_aggregate_of_parts_is_the_aggregate_of_the_whole_in_any_order():
    other = replace(SOLVED, model="a", prompt_type="flawed_missing_step")
    cases = [SOLVED, PARTIAL, other, UNSOLVED, INFRA]
    assert rows(*cases) == rows(*reversed(cases))
    assert [row["model"] for row in rows(*cases)] == ["a", "m"]
    assert rows() == []
