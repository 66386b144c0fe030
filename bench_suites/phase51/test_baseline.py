"""Phase 5.1: what models can do with a sound plan. Other phases take common cells from here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites.expected import EXPECTED
from bench_suites.selection import selection
from bench_suites.workflow import Episode, Verdict, score

pytestmark = pytest.mark.ultrapar(
    summary=("model", "task_type"),
    repeats_over="task_type",
    cluster=("task_type",),
    expect=EXPECTED,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cells: task types."""
    chosen = selection(metafunc.config)
    metafunc.parametrize("task_type", chosen.task_types)
    metafunc.parametrize("prompt_type", chosen.prompt_types("optimal"))
    metafunc.parametrize("difficulty", chosen.difficulties("easy"))
    metafunc.parametrize("tool_success_rate", chosen.rates(0.8))


def test_baseline(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Judges a prefetched episode; nothing is sent."""
    grade(score(episode))
