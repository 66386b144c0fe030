"""The best possible result of any model on the same task with the same tool failures."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from bench_suites.workflow.conversation import MOST_FAILURES
from bench_suites.workflow.simulation import ToolSimulation

if TYPE_CHECKING:
    from bench_suites.workflow.task import Task


def is_reachable(task: Task, *, tool_success_rate: float, seed: int, max_turns: int) -> bool:
    """Whether the task's own calls, in the best order, solve it despite tool failures.

    The seed determines the number of attempts of each step, regardless of the order of steps. Two
    things decide: the number of turns, and whether successes can separate the failures, since too
    many failures in a row end an episode. A model that looks tools up first needs more turns.
    This function has no side effects.

    Args:
        task: From the library.
        tool_success_rate: The success rate of tools in the episode.
        seed: The seed of the episode's tool failures.
        max_turns: The maximum number of turns in the episode.
    """
    needed = _tries(task, ToolSimulation(tool_success_rate, seed, task.inputs), max_turns)
    if needed is None:
        return False
    tools = task.required
    needs = [[tools.index(need) for need in step.needs] for step in task.plan.steps]

    @cache
    def leads_there(tried: tuple[int, ...], n_failed: int) -> bool:
        if n_failed == MOST_FAILURES:
            return False
        if tried == needed:
            return True
        return any(
            leads_there(
                (*tried[:at], n + 1, *tried[at + 1 :]), 0 if n + 1 == needed[at] else n_failed + 1
            )
            for at, n in enumerate(tried)
            if n < needed[at] and all(tried[need] == needed[need] for need in needs[at])
        )

    return leads_there((0,) * len(tools), 0)


def _tries(task: Task, tools: ToolSimulation, most: int) -> tuple[int, ...] | None:
    """The number of calls that each step takes; None if their sum is more than `most`."""
    found: list[int] = []
    for step in task.plan.steps:
        n_tries = 1
        while not tools.run(step.tool, dict(step.parameters)).ok:
            n_tries += 1
            if sum(found) + n_tries > most:
                return None
        found.append(n_tries)
    return tuple(found) if sum(found) <= most else None
