"""Task achievement and quality of an episode: the second stage of the original's scoring.

The original's batch path scored without the execution history: execution success was the constant
0.8, recovery was 0, and any successful call was an output. Here all figures come from the calls, so
they differ from the published ones. Progress counts only tools of the sound plan. A successful
call of one of the plan's last two steps counts as an output, since every task in the library
expects two outputs.
The verdict requires at least one output; the scorer uses the share of outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bench_suites.workflow.adherence import adherence

if TYPE_CHECKING:
    from bench_suites.workflow.episode import Episode
    from bench_suites.workflow.task import TaskType

Level = Literal["full", "partial", "failure"]

VERDICT_MINIMUM: dict[TaskType, int] = {
    "simple_task": 1,
    "basic_task": 2,
    "data_pipeline": 2,
    "api_integration": 2,
    "multi_stage_pipeline": 3,
}
"""The minimum number of tools that counts as progress in `level`. Source: the original's
executor."""

SCORER_MINIMUM: dict[TaskType, int] = {**VERDICT_MINIMUM, "data_pipeline": 3}
"""The number of tools with which `progress` is 1. Source: the original's scorer."""

N_OUTPUT_STEPS = 2
PARTIAL_COVERAGE = 0.6
PARTIAL_CRITERIA = 2
_MUCH_OUTPUT = 0.8
_RECOVERY_STEP = 0.3


def coverage(episode: Episode) -> float:
    """The share of the required tools that succeeded, 0 to 1."""
    return _n_done(episode) / len(set(episode.sound))


def output(episode: Episode) -> float:
    """The share of the expected outputs whose step succeeded, 0 to 1."""
    outputs = episode.sound[-N_OUTPUT_STEPS:]
    return sum(tool in episode.succeeded for tool in outputs) / len(outputs)


def progress(episode: Episode) -> float:
    """The required tools that succeeded, divided by the scorer's minimum, but no more than 1."""
    return min(_n_done(episode) / SCORER_MINIMUM[episode.task_type], 1.0)


def level(episode: Episode) -> Level:
    """The verdict of the first stage.

    full: all required tools succeeded, and their first successes are in the plan's order. partial:
    at least two of these are true: coverage >= 0.6, at least one output, the verdict's minimum of
    required tools, a completion phrase.
    """
    first = [tool for tool in episode.first_successes if tool in episode.sound]
    if first == list(episode.sound):
        return "full"
    met = (
        coverage(episode) >= PARTIAL_COVERAGE,
        output(episode) > 0,
        _n_done(episode) >= VERDICT_MINIMUM[episode.task_type],
        episode.completed,
    )
    return "partial" if sum(met) >= PARTIAL_CRITERIA else "failure"


def task_achievement(episode: Episode) -> float:
    """The achieved part of the task, 0 to 1.

    Source: the original's weights. Output, progress and coverage have the weights 0.5, 0.3 and 0.2
    if output is above 0.8, otherwise 0.3, 0.3 and 0.4.
    """
    parts = (output(episode), progress(episode), coverage(episode))
    weights = (0.5, 0.3, 0.2) if parts[0] > _MUCH_OUTPUT else (0.3, 0.3, 0.4)
    return sum(weight * part for weight, part in zip(weights, parts, strict=True))


def execution_quality(episode: Episode) -> float:
    """The quality of the execution, 0 to 1.

    Source: the original's weights: 0.4 execution success + 0.3 efficiency + 0.2 adherence (to the
    sound plan) + 0.1 recovery.
    """
    if not episode.calls:
        return 0.0
    success = len(episode.succeeded) / len(episode.calls)
    return (
        0.4 * success
        + 0.3 * _efficiency(episode)
        + 0.2 * adherence(episode.sound, episode.calls)
        + 0.1 * _recovery(episode)
    )


def adjusted(
    achievement: float, quality: float, judged: Level, *, n_calls: int
) -> tuple[float, float]:
    """Achievement and quality, adjusted by the verdict of the first stage.

    Source: the original's rules. full: at least 0.8 and 0.7. partial: achievement at least 0.5,
    quality unchanged. failure with a call: the larger of 0.8 x value and 0.2. failure without a
    call: 0.5 x value.
    """
    if judged == "full":
        return max(achievement, 0.8), max(quality, 0.7)
    if judged == "partial":
        return max(achievement, 0.5), quality
    if n_calls:
        return max(0.8 * achievement, 0.2), max(0.8 * quality, 0.2)
    return 0.5 * achievement, 0.5 * quality


def _n_done(episode: Episode) -> int:
    return len(set(episode.sound) & set(episode.succeeded))


def _efficiency(episode: Episode) -> float:
    total = len(episode.calls)
    distinct = len({call.tool for call in episode.calls})
    share = distinct / total
    return min(1.2 * share, 1.0) if total <= 2 * distinct else 0.8 * share


def _recovery(episode: Episode) -> float:
    failed: set[str] = set()
    recovered = 0.0
    for call in episode.calls:
        if not call.ok:
            failed.add(call.tool)
        elif call.tool in failed:
            failed.discard(call.tool)
            recovered += _RECOVERY_STEP
    return min(recovered, 1.0)
