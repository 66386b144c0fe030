"""The adherence of an episode to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.workflow.episode import Call

COVERAGE_WEIGHT = 0.4
ORDER_WEIGHT = 0.3
SUCCESS_WEIGHT = 0.2
EXACT_BONUS = 0.02


def adherence(plan: Sequence[str], calls: Sequence[Call]) -> float:
    """The adherence, from 0 (no call) to 0.92 (exactly the calls of the plan).

    Source: the original's workflow score: 0.4 x share of the plan's tools that succeeded + 0.3 x
    longest common subsequence / length of the plan + 0.2 x share of calls that succeeded + 0.02 for
    an exact match.
    """
    if not calls or not plan:
        return 0.0
    succeeded = [call.tool for call in calls if call.ok]
    wanted = set(plan)
    score = COVERAGE_WEIGHT * len(wanted & set(succeeded)) / len(wanted)
    score += ORDER_WEIGHT * common_subsequence(plan, succeeded) / len(plan)
    score += SUCCESS_WEIGHT * len(succeeded) / len(calls)
    if succeeded == list(plan):
        score += EXACT_BONUS
    return score


def common_subsequence(first: Sequence[object], second: Sequence[object]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for left in first:
        diagonal = 0
        for column, right in enumerate(second, 1):
            above = row[column]
            row[column] = diagonal + 1 if left == right else max(above, row[column - 1])
            diagonal = above
    return row[-1]
