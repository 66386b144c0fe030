"""Phase 5.3: models get a plan with a flaw. Who obeys, who repairs?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites import workflow
from bench_suites.workflow import ChatModel, Episode, Verdict, score
from pytest_ultrapar import CaseInfo, prefetch

pytestmark = pytest.mark.ultrapar(summary=("model", "flaw"), repeats_over="task_type")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cells: task types x flaws, at one severity and one reliability of the tools."""
    option = metafunc.config.getoption
    flaws = [workflow.flaw(name) for name in workflow.flaw_set(option("--flaw-set"))]
    metafunc.parametrize("task_type", option("--task-type") or workflow.TASK_TYPES)
    metafunc.parametrize(("flaw", "flaw_group"), [(flaw.name, flaw.group) for flaw in flaws])
    metafunc.parametrize("severity", [option("--flaw-severity")])
    metafunc.parametrize("tool_success_rate", [option("--tool-success-rate")])


@prefetch
async def episode(
    llm: ChatModel,
    case: CaseInfo,
    *,
    task_type: str,
    flaw: str,
    flaw_group: str,
    severity: str,
    tool_success_rate: float,
) -> Episode:
    """Runs ahead, hundreds at once. Task and flawed plan are the same for every model."""
    del flaw_group  # a parameter of the case, for phase mode and policies
    task = workflow.TASKS.draw(task_type, case.repeat, case.run_seed)
    plan = workflow.flaw(flaw, severity=severity).apply(task.plan, seed=case.run_seed)
    return await workflow.run_episode(
        llm, task, plan=plan, tool_success_rate=tool_success_rate, seed=case.seed
    )


def test_flawed_workflow(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Runs in pytest, one at a time: an episode is judged, nothing is sent."""
    grade(score(episode))
