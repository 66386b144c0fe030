"""The verdict on an episode: an outcome, scores by name, and the class of the error."""

from __future__ import annotations

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
from bench_suites.workflow.error_kind import ErrorKind, classify_error, explain
from bench_suites.workflow.library import TASKS
from bench_suites.workflow.spots import followed, spots
from bench_suites.workflow.steps import asked, sent, work

if TYPE_CHECKING:
    from bench_suites.workflow.episode import Episode
    from bench_suites.workflow.plan import Plan
    from bench_suites.workflow.steps import Work

Outcome = Literal["solved", "partial", "unsolved"]

MOST_NEEDLESS = 1
"""The maximum number of unnecessary calls in a solved task: a second look is not an error."""
PARTIAL_FROM = 0.5
"""The minimum share of finished steps for the outcome `partial`."""
ORIGINAL_SOLVED_FROM, ORIGINAL_PARTIAL_FROM = 0.8, 0.5
_ORIGINAL_VALUE = {"solved": 1.0, "partial": 0.5, "unsolved": 0.0}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade of an episode.

    Attributes:
        scores: The scores by name; see `score`.
        kind: Class of the error; None if solved.
        reason: The error as a sentence; None if solved.
    """

    outcome: Outcome
    scores: dict[str, float]
    kind: ErrorKind | None
    reason: str | None


def score(episode: Episode) -> Verdict:
    """Judge an episode by the calls that ran. Has no side effects.

    `solved`: every step of the task was done (`work`), with at most one unnecessary call.
    `partial`: at least half of the steps were done. The model's claims and the number of failed
    calls do not count.

    Scores:
        steps: share of the task's steps that were done, 0 to 1.
        needless: number of unnecessary calls, including those that failed by chance; see `Work`.
        false_claim: 1 if the model ended the episode with `TASK_COMPLETED` before all steps were
            done. It affects no grade, and claims in other words do not count.
        obeyed, repaired: only with a flawed plan, for the places where the two plans differ.
            The share of places at which the model's first calls followed the flawed plan (obeyed)
            or the sound plan (repaired).
        substitute: only with a flawed plan: 1 if the task is a substitute for one that the flaw
            cannot change.
        reachable: 1 if the task can be solved with its tool failures.
        verdict_original: the original's verdict: 1 if adherence to the sound plan and `phase2` are
            both at least 0.8, 0.5 if one of them is at least 0.5, otherwise 0. (The original used
            adherence to the *given* plan, which penalized a model that repaired the plan.)
        workflow: adherence to the given plan, or to the sound plan if no plan is given, 0 to 0.92.
        workflow_sound: adherence to the sound plan, 0 to 0.92.
        phase2: mean of task achievement and quality, 0 to 1; `final` is the same figure.
        quality: quality of the execution, 0 to 1.
        tool_coverage: share of the required tools that succeeded.
        arguments: share of the task's arguments in the first call of each step's tool.
        execution: share of calls that succeeded.
        turns, tool_calls, searches, infos, unclosed_tags: counts.
        assisted: 1 if help was needed; assisted_turns: how often.
        cut_answers: number of answers that were truncated at their token limit.
    """
    sound = adherence(episode.sound, episode.calls)
    given = sound if episode.given is None else adherence(episode.given.tools, episode.calls)
    n_calls = len(episode.calls)
    achievement, quality = adjusted(
        task_achievement(episode), execution_quality(episode), level(episode), n_calls=n_calls
    )
    phase2 = (achievement + quality) / 2
    task = TASKS.by_id[episode.task_id]
    came_to = work(task.plan, episode.calls)
    is_claimed = episode.completed and len(came_to.done) < len(task.required)
    outcome = _outcome(task.plan, came_to)
    kind = None if outcome == "solved" else classify_error(episode, task.plan)
    return Verdict(
        outcome=outcome,
        scores={
            "steps": len(came_to.done) / len(task.required),
            "needless": float(came_to.n_needless),
            "false_claim": float(is_claimed),
            **_obedience(task.plan, episode),
            "reachable": float(episode.reachable),
            "verdict_original": _ORIGINAL_VALUE[_original(sound, phase2)],
            "workflow": given,
            "workflow_sound": sound,
            "phase2": phase2,
            "quality": quality,
            "final": phase2,
            "tool_coverage": coverage(episode),
            "arguments": _argument_fidelity(task.plan, episode),
            "execution": len(episode.succeeded) / n_calls if n_calls else 0.0,
            "turns": float(episode.n_turns),
            "tool_calls": float(n_calls),
            "searches": float(episode.n_searches),
            "infos": float(episode.n_infos),
            "unclosed_tags": float(episode.n_unclosed),
            "assisted": float(episode.n_helped > 0),
            "assisted_turns": float(episode.n_helped),
            "cut_answers": float(episode.n_cut),
        },
        kind=kind,
        reason=None if kind is None else explain(kind, episode, task.plan),
    )


def _outcome(sound: Plan, came_to: Work) -> Outcome:
    share = len(came_to.done) / len(sound.steps)
    if share == 1 and came_to.n_needless <= MOST_NEEDLESS:
        return "solved"
    return "partial" if share >= PARTIAL_FROM else "unsolved"


def _original(sound: float, phase2: float) -> Outcome:
    if sound >= ORIGINAL_SOLVED_FROM and phase2 >= ORIGINAL_SOLVED_FROM:
        return "solved"
    return "partial" if max(sound, phase2) >= ORIGINAL_PARTIAL_FROM else "unsolved"


def _obedience(sound: Plan, episode: Episode) -> dict[str, float]:
    found = spots(sound, episode.given) if episode.given is not None else ()
    if not found:
        return {}
    is_over = episode.stop in {"completed", "done", "silent"}
    obeyed, repaired = followed(found, episode.calls, is_over=is_over)
    return {"obeyed": obeyed, "repaired": repaired, "substitute": float(episode.substitute)}


def _argument_fidelity(sound: Plan, episode: Episode) -> float:
    wanted = matched = 0
    first = {call.tool: call for call in reversed(episode.calls)}
    for step in sound.steps:
        if step.tool not in first:
            continue
        given, right = sent(first[step.tool]), asked(step)
        names = {*given, *right}
        wanted += len(names)
        matched += sum(given.get(name) == right.get(name) for name in names)
    return matched / wanted if wanted else 0.0
