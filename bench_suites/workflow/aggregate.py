"""The original's table of results: one row per cell, always recomputed from the cases themselves.

No sum, average or rate is ever stored and added to: merging two runs is putting their cases
together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench_suites.workflow.error_kind import ERROR_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, str | int | float | None]

KEY = ("model", "prompt_type", "tool_success_rate", "difficulty", "task_type")
PARTIAL_WEIGHT = 0.5

_RATE_NAMES = {
    "tool_selection": "tool_selection_error_rate",
    "parameter_config": "parameter_error_rate",
    "sequence_order": "sequence_error_rate",
    "dependency": "dependency_error_rate",
    "timeout": "timeout_error_rate",
    "tool_call_format": "format_error_rate",
    "max_turns": "max_turns_error_rate",
    "other": "other_error_rate",
}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What a finished case brings to its cell.

    Attributes:
        prompt_type: `baseline`, `optimal`, `cot`, or `flawed_` and the flaw's name.
        outcome: `solved`, `partial`, `unsolved`; any other (`infra`, `error`) is no measurement.
        kind: Class of the error, for partial and unsolved cases.
        scores: As `score` gives them.
    """

    model: str
    prompt_type: str
    tool_success_rate: float
    difficulty: str
    task_type: str
    outcome: str
    duration_s: float
    kind: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


def aggregate(cases: Iterable[CaseResult], *, last_updated: str) -> list[Row]:
    """A row of the original's 51 columns per cell, sorted by key, and `infra` as the 52nd.

    One definition of each figure: `success` is `full_success` + `partial_success`; the weighted
    score counts a partial case half; error rates are shares of all errors; averages and rates are
    None where a cell has no measured case, never 0. `infra` counts what the infrastructure failed
    to answer, which is in no other column.

    Args:
        cases: In any order.
        last_updated: Time of the newest case, as text.
    """
    cells: dict[tuple[str, ...], list[CaseResult]] = {}
    for case in cases:
        cells.setdefault(tuple(str(getattr(case, name)) for name in KEY), []).append(case)
    return [_row(cells[key], last_updated) for key in sorted(cells)]


def _row(cell: Sequence[CaseResult], last_updated: str) -> Row:
    measured = [case for case in cell if case.outcome in {"solved", "partial", "unsolved"}]
    key: Row = {name: getattr(cell[0], name) for name in KEY}
    return {
        **key,
        **_counts(measured),
        **_means(measured),
        **_errors(measured),
        **_assistance(measured),
        "last_updated": last_updated,
        "infra": sum(case.outcome == "infra" for case in cell),
    }


def _counts(cases: Sequence[CaseResult]) -> Row:
    total = len(cases)
    full = sum(case.outcome == "solved" for case in cases)
    partial = sum(case.outcome == "partial" for case in cases)
    return {
        "total": total,
        "success": full + partial,
        "full_success": full,
        "partial_success": partial,
        "successful": full + partial,
        "partial": partial,
        "failed": total - full - partial,
        "success_rate": _share(full + partial, total),
        "full_success_rate": _share(full, total),
        "partial_success_rate": _share(partial, total),
        "partial_rate": _share(partial, total),
        "failure_rate": _share(total - full - partial, total),
        "weighted_success_score": _share(full + PARTIAL_WEIGHT * partial, total),
    }


def _means(cases: Sequence[CaseResult]) -> Row:
    def mean(name: str) -> float | None:
        return _share(sum(case.scores.get(name, 0.0) for case in cases), len(cases))

    return {
        "avg_execution_time": _share(sum(case.duration_s for case in cases), len(cases)),
        "avg_turns": mean("turns"),
        "avg_tool_calls": mean("tool_calls"),
        "tool_coverage_rate": mean("tool_coverage"),
        "avg_workflow_score": mean("workflow"),
        "avg_phase2_score": mean("phase2"),
        "avg_quality_score": mean("quality"),
        "avg_final_score": mean("final"),
    }


def _errors(cases: Sequence[CaseResult]) -> Row:
    kinds = [case.kind or "other" for case in cases if case.outcome != "solved"]
    row: Row = {"total_errors": len(kinds)}
    for kind in ERROR_KINDS:
        row[f"{kind}_errors"] = kinds.count(kind)
    for named, column in _RATE_NAMES.items():
        row[column] = _share(kinds.count(named), len(kinds))
    return row


def _assistance(cases: Sequence[CaseResult]) -> Row:
    assisted = [case for case in cases if case.scores.get("assisted")]
    succeeded = sum(case.outcome != "unsolved" for case in assisted)
    turns = sum(case.scores.get("assisted_turns", 0.0) for case in assisted)
    return {
        "assisted_failure": len(assisted) - succeeded,
        "assisted_success": succeeded,
        "total_assisted_turns": turns,
        "tests_with_assistance": len(assisted),
        "avg_assisted_turns": _share(turns, len(assisted)),
        "assisted_success_rate": _share(succeeded, len(assisted)),
        "assistance_rate": _share(len(assisted), len(cases)),
    }


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
