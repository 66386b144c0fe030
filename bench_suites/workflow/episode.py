"""What an episode leaves behind: plain data, all that grading will ever know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench_suites.workflow.plan import Plan
from bench_suites.workflow.prompts import PromptType
from bench_suites.workflow.task import Difficulty, TaskType

StopReason = Literal[
    "completed", "done", "failing", "repeating", "silent", "cut", "refusal", "max_turns"
]
"""Why an episode ended.

completed: the model said the word for it, rightly or not.
done: everything required had succeeded, and the model asked for nothing or went on for two more
turns.
failing: the last five calls failed.
repeating: three successes of one tool among its five last calls, and no other call between them.
silent: three messages in a row asked for nothing, or the last ones within the limit of turns.
cut, refusal: the same, and the last of these messages was cut off, or refused to help.
max_turns: the limit of turns.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the model.

    Attributes:
        turn: In which turn, from 0.
        tool: The registry's name; what the model wrote if there is no such tool.
        arguments: JSON text; `null` if the model wrote no JSON object.
        ok: Whether the tool did its work.
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
        given: The plan that the model was shown; None if it was shown none.
        sound: Tools of the task's sound plan, the required ones.
        calls: In order.
        n_turns: Answers of the model.
        n_searches: Queries answered.
        n_infos: Questions about tools answered.
        n_helped: Messages that asked for nothing and were answered with help.
        n_unclosed: Tags that the model did not close; they cost it nothing.
        completed: Whether the model ended it with the word for that.
        reachable: Whether a flawless model would have solved the task with the same luck.
        substitute: Whether the task stands for one that the plan's flaw could not spoil.
        n_cut: Answers that ended at their limit of tokens.
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
        """Tools of the successful calls, in order, repeats included."""
        return tuple(call.tool for call in self.calls if call.ok)

    @property
    def first_successes(self) -> tuple[str, ...]:
        """Tools in the order of their first success."""
        return tuple(dict.fromkeys(self.succeeded))
