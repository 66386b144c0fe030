"""Phase 5.4: the cost of unreliable tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites.expected import phase
from bench_suites.selection import parametrize_cells
from bench_suites.workflow import Episode, Verdict, score

pytestmark = phase("model", "tool_success_rate", taken_from="phase51")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the cells by task type and tool success rate. Rate 0.8 belongs to phase 5.1."""
    parametrize_cells(metafunc, rates=(0.9, 0.8, 0.7, 0.6, 0.5))


def test_tool_reliability(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Grade a prefetched episode. Sends no request."""
    grade(score(episode))
