"""The original's table of results: one row per cell, always computed from the cases.

Stored sums, means and rates are never added up: to merge two runs, combine their cases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from pytest_ultrapar.records import GRADED, by_key

Row = dict[str, str | int | float | datetime | None]

KEY = ("model", "prompt_type", "tool_success_rate", "difficulty", "task_type")
_key_of = attrgetter(*KEY)
PARTIAL_WEIGHT = 0.5

_ERROR_ORDER = (
    "tool_call_format",
    "timeout",
    "dependency",
    "parameter_config",
    "tool_selection",
    "sequence_order",
    "max_turns",
    "other",
)
"""The original's order of error columns. The columns for rates have other names and another
order."""
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
    """The result of a finished case.

    Attributes:
        prompt_type: `baseline`, `optimal`, `cot`, or `flawed_` and the flaw's name.
        outcome: `solved`, `partial` or `unsolved`; other outcomes (`infra`, `error`) are not
            measured.
        duration_s: Seconds from the first lease to the end; None if unknown.
        ended_at: UTC; None for a case that never ran.
        kind: Class of the error, for partial and unsolved cases. A kind that is not one of the
            original's eight classes (such as `luck`, `needless_calls` or a refused prompt) counts
            as `other`.
        scores: The scores that `score` returned. A mean covers only the cases that have the score.
    """

    model: str
    prompt_type: str
    tool_success_rate: float
    difficulty: str
    task_type: str
    outcome: str
    duration_s: float | None
    ended_at: datetime | None = None
    kind: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts and shares of any set of cases. Success is defined only here.

    Shares are from 0 to 1; without cases they are None.

    Attributes:
        measured: The measured cases: solved, partial or unsolved.
        n_full: The number of solved cases.
        n_partial: The number of partial cases.
        n_infra: The number of cases that got no answer because the infrastructure failed. They
            are included in no other figure.
    """

    measured: tuple[CaseResult, ...]
    n_full: int
    n_partial: int
    n_infra: int

    @classmethod
    def of(cls, cases: Iterable[CaseResult]) -> Tally:
        """The tally of some cases, in any order."""
        cases = tuple(cases)
        counts = Counter(case.outcome for case in cases)
        return cls(
            tuple(case for case in cases if case.outcome in GRADED),
            counts["solved"],
            counts["partial"],
            counts["infra"],
        )

    @property
    def n(self) -> int:
        """The number of measured cases."""
        return len(self.measured)

    @property
    def n_success(self) -> int:
        """The number of solved and partial cases."""
        return self.n_full + self.n_partial

    @property
    def weighted(self) -> float | None:
        """(solved + 0.5 x partial) / n."""
        return share(self.n_full + PARTIAL_WEIGHT * self.n_partial, self.n)

    def mean(self, score: str) -> float | None:
        """The mean of a score over the measured cases that have it."""
        known = [case.scores[score] for case in self.measured if score in case.scores]
        return share(math.fsum(known), len(known))


def aggregate(cases: Iterable[CaseResult]) -> list[Row]:
    """One row per cell, sorted by key: the original's 51 columns, and `infra` as column 52.

    `success` is `full_success` + `partial_success`. The weighted score counts a partial case half.
    Error rates are shares of all errors. Means and rates of a cell without a measured case are
    None, never 0. `infra` counts the cases that got no answer because the infrastructure failed;
    they are in no other column.

    Args:
        cases: In any order; the result does not depend on it.
    """
    cells = by_key((_key_of(case), case) for case in cases)
    return [_row(key, cells[key]) for key in sorted(cells)]


def share(part: float, whole: int) -> float | None:
    """`part / whole`; None if `whole` is 0."""
    return part / whole if whole else None


def _row(key: Sequence[str | float], cell: Sequence[CaseResult]) -> Row:
    tally = Tally.of(cell)
    return {
        **dict(zip(KEY, key, strict=True)),
        **_counts(tally),
        **_means(tally),
        **_errors(tally.measured),
        **_assistance(tally.measured),
        "last_updated": max((case.ended_at for case in cell if case.ended_at), default=None),
        "infra": tally.n_infra,
    }


def _counts(tally: Tally) -> Row:
    total, full, partial, success = tally.n, tally.n_full, tally.n_partial, tally.n_success
    return {
        "total": total,
        "success": success,
        "full_success": full,
        "partial_success": partial,
        "successful": success,
        "partial": partial,
        "failed": total - success,
        "success_rate": share(success, total),
        "full_success_rate": share(full, total),
        "partial_success_rate": share(partial, total),
        "partial_rate": share(partial, total),
        "failure_rate": share(total - success, total),
        "weighted_success_score": tally.weighted,
    }


def _means(tally: Tally) -> Row:
    known_s = [case.duration_s for case in tally.measured if case.duration_s is not None]
    return {
        "avg_execution_time": share(math.fsum(known_s), len(known_s)),
        "avg_turns": tally.mean("turns"),
        "avg_tool_calls": tally.mean("tool_calls"),
        "tool_coverage_rate": tally.mean("tool_coverage"),
        "avg_workflow_score": tally.mean("workflow"),
        "avg_phase2_score": tally.mean("phase2"),
        "avg_quality_score": tally.mean("quality"),
        "avg_final_score": tally.mean("final"),
    }


def _errors(cases: Sequence[CaseResult]) -> Row:
    kinds: Counter[str] = Counter(
        case.kind if case.kind in _ERROR_ORDER else "other"
        for case in cases
        if case.outcome != "solved"
    )
    total = kinds.total()
    return {
        "total_errors": total,
        **{f"{kind}_errors": kinds[kind] for kind in _ERROR_ORDER},
        **{column: share(kinds[kind], total) for kind, column in _RATE_NAMES.items()},
    }


def _assistance(cases: Sequence[CaseResult]) -> Row:
    assisted = [case for case in cases if case.scores.get("assisted")]
    succeeded = sum(case.outcome != "unsolved" for case in assisted)
    turns = round(math.fsum(case.scores.get("assisted_turns", 0.0) for case in assisted))
    return {
        "assisted_failure": len(assisted) - succeeded,
        "assisted_success": succeeded,
        "total_assisted_turns": turns,
        "tests_with_assistance": len(assisted),
        "avg_assisted_turns": share(turns, len(assisted)),
        "assisted_success_rate": share(succeeded, len(assisted)),
        "assistance_rate": share(len(assisted), len(cases)),
    }
