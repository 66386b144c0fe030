"""The messages with which an episode begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from bench_suites.workflow.library import TASKS
from bench_suites.workflow.plan import Plan, shown
from bench_suites.workflow.task import OUTLINED

if TYPE_CHECKING:
    from bench_suites.workflow.task import Difficulty, Task

PromptType = Literal["baseline", "optimal", "cot"]
PROMPT_TYPES: tuple[PromptType, ...] = get_args(PromptType)

COMPLETED = "TASK_COMPLETED"

SYSTEM = f"""\
You work through a task by calling tools. This is an automated run: nobody can answer questions, \
so decide yourself and use the values given under Inputs.

You act through three tags:
<tool_search>a few words</tool_search> finds tools; several searches may stand in one message.
<tool_info>tool_name</tool_info> tells all about one tool.
<tool_call>tool_name {{"parameter": "value"}}</tool_call> runs a tool with arguments as JSON.

Rules:
- One tool_call per message. Then stop and wait for its result.
- A tool's name is always category_operation. The categories are file_operations, data_processing, \
network, computation, integration, utility.
- A tool does not run before the tools that it needs have succeeded.
- Tools may fail by chance. A failed tool may be called again.
- When everything is done, and not before, answer {COMPLETED}."""

_TYPE_LINES = {
    "simple_task": "This is a small job of a few steps.",
    "basic_task": "This is an everyday job of a few steps.",
    "data_pipeline": "This is a data pipeline: each step builds on what was made before it.",
    "api_integration": "This is an integration job: systems have to be brought together.",
    "multi_stage_pipeline": "This is a pipeline of several stages with a result at its end.",
}
_PLAN_INTRODUCTION = "Plan (follow its steps in order):"
_COT = """\
Think step by step before you act: begin your message with "Reasoning:", say in a few sentences \
what is to be done next and why, then act once."""


def build_messages(
    task: Task, *, prompt_type: PromptType, difficulty: Difficulty, plan: Plan | None
) -> list[dict[str, str]]:
    """The system and the user message that open an episode.

    `optimal` shows the plan. The whole plan is shown if the difficulty is `very_easy` or `easy`, or
    if the plan is not the task's sound plan. Otherwise only an outline is shown. `baseline` shows
    no plan. `cot` is `baseline` with a request to think.

    Raises:
        ValueError: The prompt type or difficulty is unknown, or `optimal` has no plan.
    """
    if prompt_type not in PROMPT_TYPES:
        msg = f"prompt type {prompt_type!r} is unknown; allowed are {', '.join(PROMPT_TYPES)}"
        raise ValueError(msg)
    parts = [
        _TYPE_LINES[task.task_type],
        f"Task: {TASKS.description(task, difficulty)}",
        "Inputs:\n" + "\n".join(f"- {name}: {shown(v)}" for name, v in task.inputs.items()),
        "Expected outputs:\n" + "\n".join(f"- {text}" for text in task.expected_outputs),
    ]
    is_outlined = False
    if prompt_type == "optimal":
        if plan is None:
            msg = "prompt type 'optimal' shows a plan, but none was given"
            raise ValueError(msg)
        is_outlined = difficulty in OUTLINED and plan == task.plan
        plan_text = plan.outlined() if is_outlined else plan.rendered()
        parts.append(f"{_PLAN_INTRODUCTION}\n{plan_text}")
    if prompt_type == "cot":
        parts.append(_COT)
    parts.append(
        "Begin with the first step."
        if prompt_type == "optimal" and not is_outlined
        else "Begin by searching for the tools you need."
    )
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
