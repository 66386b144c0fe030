"""What could be reached: a model without a fault, on the same task with the same luck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_suites.workflow.conversation import Conversation
from bench_suites.workflow.reply_parser import Action, ParsedReply

if TYPE_CHECKING:
    from bench_suites.workflow.task import Task


def is_reachable(task: Task, *, tool_success_rate: float, seed: int, max_turns: int) -> bool:
    """Whether a flawless model solves the task with this luck. Pure.

    It makes the sound plan's calls and no others, each until it succeeds. What it cannot solve was
    the tools' doing. A model that looks things up first needs more turns than it.

    Args:
        task: From the library.
        tool_success_rate: As of the episode.
        seed: The episode's luck.
        max_turns: The episode's.
    """
    conversation = Conversation(task, tool_success_rate=tool_success_rate, seed=seed)
    stop = None
    for step in task.plan.steps:
        call = ParsedReply("", (Action("call", step.tool, dict(step.parameters)),))
        is_done = False
        while not is_done:
            if stop is not None:
                return False
            _, stop = conversation.take(call, last=conversation.n_turns + 1 >= max_turns)
            is_done = conversation.calls[-1].ok
    return True
