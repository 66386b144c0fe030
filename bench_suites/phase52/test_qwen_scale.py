"""Phase 5.2: how much size matters at which difficulty, over one family of models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites.expected import EXPECTED
from bench_suites.nothing_selected import QWEN
from bench_suites.selection import parametrize_cells
from bench_suites.workflow import Episode, Verdict, score

pytestmark = pytest.mark.ultrapar(
    models=QWEN,
    summary=("model", "difficulty"),
    taken_from="phase51",
    repeats_over="task_type",
    cluster=("task_type",),
    expect=EXPECTED,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cells: task types x difficulties; the easy ones are those of phase 5.1."""
    parametrize_cells(metafunc, difficulties=("very_easy", "easy", "medium"))


def test_qwen_scale(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Judges a prefetched episode; nothing is sent."""
    grade(score(episode))
