"""Phase 5.5: the value of the plan in the prompt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites.expected import phase
from bench_suites.selection import OF_55, parametrize_cells
from bench_suites.workflow import Episode, Verdict, score

pytestmark = phase("model", "prompt_type", taken_from="phase51")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the cells by task type and prompt type. `optimal` belongs to phase 5.1."""
    parametrize_cells(metafunc, prompt_types=OF_55)


def test_prompt_sensitivity(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Grade a prefetched episode. Sends no request."""
    grade(score(episode))
