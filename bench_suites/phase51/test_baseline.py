"""Phase 5.1: the ability of models with a sound plan. Other phases reuse its cells."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites.expected import phase
from bench_suites.selection import parametrize_cells
from bench_suites.workflow import Episode, Verdict, score

pytestmark = phase("model", "task_type")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the cells by task type."""
    parametrize_cells(metafunc)


def test_baseline(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Grade a prefetched episode. Sends no request."""
    grade(score(episode))
