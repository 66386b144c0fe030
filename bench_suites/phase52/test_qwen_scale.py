"""Phase 5.2: how much size matters at which difficulty, over one family of models."""

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
    """The cells: task types x difficulties; the easy ones are those of phase 5.1.

    Where those cannot be taken from, mode `phase` leaves them out, as the original did (seed 002).
    """
    config = metafunc.config
    has_easy = "phase51" in phases_named(config) or config.getoption("ultrapar_reuse")
    easy = ("easy",) if has_easy or config.getoption("ultrapar_mode") != "phase" else ()
    parametrize_cells(metafunc, difficulties=("very_easy", *easy, "medium"))


def test_qwen_scale(episode: Episode, grade: Callable[[Verdict], None]) -> None:
    """Judges a prefetched episode; nothing is sent."""
    grade(score(episode))
