"""Phase 5.2: the effect of model size at each difficulty, within one family of models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites.expected import phase
from bench_suites.nothing_selected import QWEN
from bench_suites.phases import phases_named
from bench_suites.selection import parametrize_cells
from bench_suites.workflow import Episode, Verdict, score

pytestmark = phase("model", "difficulty", models=QWEN, taken_from="phase51")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the cells by task type and difficulty. The easy cells belong to phase 5.1.

    If they cannot be taken from phase 5.1, mode `phase` omits them, as the original did (script
    seed 002).
    """
    config = metafunc.config
    has_easy = "phase51" in phases_named(config) or config.getoption("ultrapar_reuse")
    easy = ("easy",) if has_easy or config.getoption("ultrapar_mode") != "phase" else ()
    parametrize_cells(metafunc, difficulties=("very_easy", *easy, "medium"))


def test_qwen_scale(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Grade a prefetched episode. Sends no request."""
    grade(score(episode))
