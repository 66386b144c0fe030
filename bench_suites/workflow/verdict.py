"""The judgement of an episode: one outcome, scores by name, and what went wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench_suites.workflow.achievement import (
    adjusted,
    coverage,
    execution_quality,
    level,
    task_achievement,
)
from bench_suites.workflow.adherence import adherence
from bench_suites.workflow.error_kind import ErrorKind, classify_error
from bench_suites.workflow.library import TASKS

if TYPE_CHECKING:
    from bench_suites.workflow.episode import Episode

Outcome = Literal["solved", "partial", "unsolved"]

SOLVED_FROM = 0.8
PARTIAL_FROM = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an episode is worth.

    Attributes:
        scores: By name; see `score`.
        kind: Class of the error; None if solved.
    """

    outcome: Outcome
    scores: dict[str, float]
    kind: ErrorKind | None


def score(episode: Episode) -> Verdict:
    """Judge an episode from what was really executed. Pure.

    `solved` takes adherence to the *sound* plan and the second phase's score of at least 0.8 each,
    `partial` one of them of at least 0.5. The original took adherence to the plan it had *given*,
    so a model that repaired a flawed plan was marked down for it.

    Scores:
        workflow: adherence to the plan given, 0 to 0.92; where none was given, to the sound plan.
        workflow_sound: adherence to the sound plan, 0 to 0.92.
        phase2: mean of task achievement and quality, 0 to 1; `final` is the same figure.
        quality: how well it was carried out, 0 to 1.
        tool_coverage: share of the required tools that succeeded.
        arguments: share of the task's inputs that reached the tools that succeeded.
        execution: share of calls that succeeded.
        turns, tool_calls, searches, infos, unclosed_tags: counts.
        assisted: 1 if help was needed; assisted_turns: how often.
    """
    sound = adherence(episode.sound, episode.calls)
    given = sound if episode.given is None else adherence(episode.given, episode.calls)
    n_calls = len(episode.calls)
    achievement, quality = adjusted(
        task_achievement(episode), execution_quality(episode), level(episode), n_calls=n_calls
    )
    phase2 = (achievement + quality) / 2
    outcome = _outcome(sound, phase2)
    return Verdict(
        outcome=outcome,
        scores={
            "workflow": given,
            "workflow_sound": sound,
            "phase2": phase2,
            "quality": quality,
            "final": phase2,
            "tool_coverage": coverage(episode),
            "arguments": _argument_fidelity(episode),
            "execution": len(episode.succeeded) / n_calls if n_calls else 0.0,
            "turns": float(episode.n_turns),
            "tool_calls": float(n_calls),
            "searches": float(episode.n_searches),
            "infos": float(episode.n_infos),
            "unclosed_tags": float(episode.n_unclosed),
            "assisted": float(episode.n_helped > 0),
            "assisted_turns": float(episode.n_helped),
        },
        kind=None if outcome == "solved" else classify_error(episode),
    )


def _outcome(sound: float, phase2: float) -> Outcome:
    if sound >= SOLVED_FROM and phase2 >= SOLVED_FROM:
        return "solved"
    return "partial" if max(sound, phase2) >= PARTIAL_FROM else "unsolved"


def _argument_fidelity(episode: Episode) -> float:
    task = TASKS.by_id.get(episode.task_id)
    if task is None:
        return 0.0
    wanted = matched = 0
    last = {call.tool: call.arguments for call in episode.calls if call.ok}
    for step in task.plan.steps:
        if step.tool not in last:
            continue
        given = json.loads(last[step.tool]) or {}
        for name, value in step.parameters:
            wanted += 1
            # JSON has no tuples: what the task holds as one comes back as a list.
            expected = list(value) if isinstance(value, tuple) else value
            matched += given.get(name) == expected
    return matched / wanted if wanted else 0.0
