"""The episode that most phases share: a task with a sound plan, or without a plan."""

from __future__ import annotations

from bench_suites import workflow
from bench_suites.workflow import ChatModel, Difficulty, Episode, PromptType
from pytest_ultrapar import CaseInfo, prefetch


@prefetch
async def episode(
    llm: ChatModel,
    case: CaseInfo,
    *,
    task_type: str,
    prompt_type: PromptType,
    difficulty: Difficulty,
    tool_success_rate: float,
) -> Episode:
    """Run the task of a repetition. It is the same for every model, prompt and rate."""
    task = workflow.TASKS.draw(task_type, case.repeat, case.run_seed)
    return await workflow.run_episode(
        llm,
        task,
        prompt_type=prompt_type,
        difficulty=difficulty,
        tool_success_rate=tool_success_rate,
        seed=workflow.luck(case.run_seed, task.task_id, case.repeat),
    )
