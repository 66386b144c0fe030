"""Scripted models, whose behaviour is certain and whose grades are therefore known."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from typing import Any

from bench_suites.workflow import (
    Difficulty,
    Episode,
    Plan,
    PlanStep,
    Task,
    load_tools,
    run_episode,
)
from bench_suites.workflow.prompts import build_messages
from bench_suites.workflow.simulation import REFUSALS
from pytest_ultrapar.simulator.personas.reading import read_prompt

Script = Generator[str, str, None]
"""Yields the messages of the model and receives the answers."""

NO_CHANCE = 1.0
"""At this rate tools never fail by chance."""
_REFUSED = tuple(f"({code})" for code in REFUSALS)


@dataclass
class Said:
    text: str
    reasoning: str | None = None
    tool_calls: tuple[()] = ()
    finish_reason: str = "stop"
    refusal: str | None = None


class Scripted:
    """A model that follows a script, and falls silent after its end."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._has_begun = False

    async def chat(self, messages: list[dict[str, str]]) -> Said:
        try:
            answer = self._script.send(messages[-1]["content"] if self._has_begun else None)  # type: ignore[arg-type]
        except StopIteration:
            answer = "..."
        self._has_begun = True
        return Said(answer)


def play(
    script: Script,
    task: Task,
    plan: Plan | None = None,
    *,
    difficulty: Difficulty = "easy",
    rate: float = NO_CHANCE,
    seed: int = 1,
) -> Episode:
    """The episode of a script, with a plan in the prompt."""
    model: Any = Scripted(script)
    episode = run_episode(
        model,
        task,
        plan=plan or task.plan,
        difficulty=difficulty,
        tool_success_rate=rate,
        seed=seed,
    )
    try:
        # Nothing is awaited here, so no event loop is needed.
        episode.send(None)
    except StopIteration as end:
        found: Episode = end.value
        return found
    msg = "a scripted model waited for something"
    raise AssertionError(msg)


def call(tool: str, arguments: dict[str, object], form: str = "{}") -> str:
    """A message that calls a tool."""
    said = f"<tool_call>{tool} {json.dumps(arguments)}</tool_call>"
    return form.format(said)


def of(step: PlanStep) -> dict[str, object]:
    """A step's arguments. The later of two values with the same name counts."""
    return dict(step.parameters)


def until_done(tool: str, arguments: dict[str, object], form: str = "{}") -> Script:
    """Calls a tool until it succeeds or refuses the arguments."""
    while True:
        answer = yield call(tool, arguments, form)
        if ": success" in answer or any(word in answer for word in _REFUSED):
            return


def flawless(task: Task, plan: Plan) -> Script:
    """Does what the task asks for and ignores the plan, like a model that repairs it."""
    del plan
    for step in task.plan.steps:
        yield from until_done(step.tool, of(step))
    yield "TASK_COMPLETED"


def obedient(task: Task, plan: Plan) -> Script:
    """Follows the plan step by step, and continues after a refusal."""
    del task
    for step in plan.steps:
        yield from until_done(step.tool, of(step))
    yield "TASK_COMPLETED"


def first_taker(task: Task, plan: Plan) -> Script:
    """Follows the plan, with the first of two values that have the same name."""
    del task
    for step in plan.steps:
        yield from until_done(step.tool, dict(reversed(step.parameters)))
    yield "TASK_COMPLETED"


def once_each(task: Task, plan: Plan) -> Script:
    """Makes each call of the plan once, regardless of the result."""
    del task
    for step in plan.steps:
        yield call(step.tool, of(step))
    yield "TASK_COMPLETED"


def switching(task: Task, plan: Plan) -> Script:
    """Does what the task asks for, and switches to another ready step after each failure."""
    del plan
    left = list(task.plan.steps)
    done: set[str] = set()
    while left:
        step = next(one for one in left if done >= set(one.needs))
        left.remove(step)
        answer = yield call(step.tool, of(step))
        if ": success" in answer:
            done.add(step.tool)
        else:
            left.append(step)
    yield "TASK_COMPLETED"


def literal(task: Task, difficulty: Difficulty) -> Script:
    """Follows the plan in the prompt, as far as it names tools."""
    messages = build_messages(task, prompt_type="optimal", difficulty=difficulty, plan=task.plan)
    for step in read_prompt(messages[-1]["content"]).plan:
        yield from until_done(step.tool, step.arguments)
    yield "TASK_COMPLETED"


def example_sender(task: Task, plan: Plan) -> Script:
    """Calls the right tools with the examples of their parameters."""
    del plan
    for tool in task.required:
        yield from until_done(tool, {p.name: p.example for p in load_tools()[tool].parameters})
    yield "TASK_COMPLETED"


def guesser(task: Task, plan: Plan) -> Script:
    """Calls the right tools with invented values of the right types."""
    del plan
    values = {"string": "something", "integer": 3, "number": 0.5, "boolean": True, "array": ["a"]}
    for tool in task.required:
        yield from until_done(
            tool, {p.name: values[p.type] for p in load_tools()[tool].parameters if p.required}
        )
    yield "TASK_COMPLETED"


def claimer(task: Task, plan: Plan) -> Script:
    """Does only the last step and says that all is done."""
    del plan
    yield from until_done(task.required[-1], of(task.plan.steps[-1]))
    yield "TASK_COMPLETED"


def reverser(task: Task, plan: Plan) -> Script:
    """Always does the last of the steps whose needs are met."""
    del plan
    left = list(task.plan.steps)
    done: set[str] = set()
    while left:
        step = next(one for one in reversed(left) if done >= set(one.needs))
        yield from until_done(step.tool, of(step))
        left.remove(step)
        done.add(step.tool)
    yield "TASK_COMPLETED"


def backwards(task: Task, plan: Plan) -> Script:
    """Does the steps from the last to the first, regardless of their needs."""
    del plan
    for step in reversed(task.plan.steps):
        yield from until_done(step.tool, of(step))
    yield "TASK_COMPLETED"


@cache
def busy(n: int) -> Callable[[Task, Plan], Script]:
    """Makes `n` calls that the task does not need, and then does what the task asks for."""

    def script(task: Task, plan: Plan) -> Script:
        for tool in itertools.islice(_harmless(task), n):
            yield from until_done(tool, {p.name: p.example for p in load_tools()[tool].parameters})
        yield from flawless(task, plan)

    return script


def quitter(task: Task, plan: Plan) -> Script:
    """Does half of the steps, rounded up, and falls silent."""
    del plan
    for step in task.plan.steps[: (len(task.plan.steps) + 1) // 2]:
        yield from until_done(step.tool, of(step))


def boasting(task: Task, plan: Plan) -> Script:
    """Does half of the steps, rounded up, and says that all is done."""
    yield from quitter(task, plan)
    yield "TASK_COMPLETED"


def unclosing(task: Task, plan: Plan) -> Script:
    """Does what the task asks for and closes no tag."""
    del plan
    for step in task.plan.steps:
        yield call(step.tool, of(step)).removesuffix("</tool_call>")
    yield "TASK_COMPLETED"


def talkative(task: Task, plan: Plan) -> Script:
    """Does what the task asks for, in many words."""
    del plan
    for step in task.plan.steps:
        form = f"Now I should {step.purpose}. I will call the tool:\n\n{{}}\n\nand wait for it."
        yield from until_done(step.tool, of(step), form)
    yield "Everything has been carried out, and so the task is done."


def _harmless(task: Task) -> itertools.cycle[str]:
    """Tools that the task does not need and that can be called at any time."""
    names = (
        name
        for name, tool in load_tools().items()
        if name not in task.required
        and not tool.dependencies
        and not any(p.constraints.resource for p in tool.parameters)
    )
    return itertools.cycle(names)
