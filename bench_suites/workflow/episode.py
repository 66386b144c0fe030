"""The record of an episode: plain data, and the only input of grading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench_suites.workflow.plan import Plan
from bench_suites.workflow.prompts import PromptType
from bench_suites.workflow.task import Difficulty, TaskType

StopReason = Literal[
    "completed", "done", "failing", "repeating", "silent", "cut", "refusal", "max_turns"
]
"""The reason why an episode ended.

- completed: the model sent `TASK_COMPLETED`, rightly or not.
- done: all required steps were done, and the model sent no action or continued for two more turns.
- failing: the last five calls failed.
- repeating: the last five calls were of one tool, and at least three of them succeeded.
- silent: three messages in a row, or the last messages before the limit of turns, had no action.
- cut, refusal: as for silent, and the last of these messages was truncated, or refused to help.
- max_turns: the limit of turns.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the model.

    Attributes:
        turn: Number of the turn, from 0.
        tool: The name in the registry, or the model's text if there is no such tool.
        arguments: JSON text; `null` if the model wrote no JSON object.
        ok: Whether the call succeeded.
        error: Error code of a failure.
    """

    turn: int
    tool: str
    arguments: str
    ok: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """The course of one episode.

    Attributes:
        given: The plan in the prompt, or None.
        sound: The required tools: the tools of the task's sound plan.
        calls: In order.
        n_turns: Number of the model's answers.
        n_searches: Number of answered searches for tools.
        n_infos: Number of answered questions about tools.
        n_helped: Number of messages without an action. Each was answered with help.
        n_unclosed: Number of tags that the model did not close. They cost it nothing.
        completed: Whether the model ended the episode with `TASK_COMPLETED`.
        reachable: Whether a perfect model solves the task with the same tool failures.
        substitute: Whether the task is a substitute for one that the plan's flaw cannot change.
        n_cut: Number of answers that were truncated at their token limit.
    """

    task_id: str
    task_type: TaskType
    prompt_type: PromptType
    difficulty: Difficulty
    tool_success_rate: float
    given: Plan | None
    sound: tuple[str, ...]
    calls: tuple[Call, ...]
    n_turns: int
    n_searches: int
    n_infos: int
    n_helped: int
    n_unclosed: int
    completed: bool
    stop: StopReason
    reachable: bool
    substitute: bool = False
    n_cut: int = 0

    @property
    def succeeded(self) -> tuple[str, ...]:
        """The tools of the successful calls, in order, with repeats."""
        return tuple(call.tool for call in self.calls if call.ok)

    @property
    def first_successes(self) -> tuple[str, ...]:
        """The tools in the order of their first success."""
        return tuple(dict.fromkeys(self.succeeded))
