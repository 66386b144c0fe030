"""Phase 5.3: the effect of a flaw in the plan. Which models follow it, and which repair it?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites import workflow
from bench_suites.expected import phase
from bench_suites.selection import selection
from bench_suites.workflow import ChatModel, Difficulty, Episode, Verdict, score
from pytest_ultrapar import CaseInfo, prefetch

pytestmark = phase("model", "flaw")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the cells by task type, flaw and severity, at one success rate of tools."""
    chosen = selection(metafunc.config)
    flaws = [workflow.FLAWS[name] for name in chosen.flaws]
    metafunc.parametrize("task_type", chosen.task_types)
    metafunc.parametrize(
        ("flaw", "flaw_group", "prompt_type"),
        [pytest.param(one.name, one.group, f"flawed_{one.name}", id=one.name) for one in flaws],
    )
    metafunc.parametrize("severity", chosen.severities)
    metafunc.parametrize("difficulty", chosen.difficulties("easy"))
    metafunc.parametrize("tool_success_rate", chosen.rates(0.8))


@prefetch
async def episode(
    llm: ChatModel,
    case: CaseInfo,
    *,
    task_type: str,
    flaw: str,
    severity: str,
    difficulty: Difficulty,
    tool_success_rate: float,
) -> Episode:
    """Run the task of a repetition. Task and flawed plan are the same for every model."""
    chosen = workflow.flaw(flaw, severity=severity)
    drawn = workflow.draw_flawed(chosen, task_type, case.repeat, case.run_seed)
    return await workflow.run_episode(
        llm,
        drawn.task,
        plan=drawn.plan,
        difficulty=difficulty,
        tool_success_rate=tool_success_rate,
        seed=workflow.luck(case.run_seed, drawn.task.task_id, case.repeat),
        substitute=drawn.is_substitute,
    )


def test_flawed_workflow(
    episode: Episode, grade: Callable[[Verdict], None], flaw_group: str, prompt_type: str
) -> None:
    """Grade a prefetched episode. Sends no request."""
    del flaw_group, prompt_type  # parameters of the case, for policies and for the aggregate
    grade(score(episode))
