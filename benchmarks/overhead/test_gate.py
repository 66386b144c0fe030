"""What a gate is measured on: cases whose answer is right with a chance that the pool sets.

`python -m benchmarks.overhead gate` makes the pools and measures.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.overhead.conversation import opening
from pytest_ultrapar import Llm, prefetch

_RIGHT = "TASK_COMPLETED"
"""What a persona with nothing left to do says; one that slips does not."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many cases for each model as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def said(llm: Llm, number: int) -> str:
    """An answer that is right or not."""
    return (await llm.chat([opening(number)])).text


def test_gate(said: str, grade: Callable[[str], None]) -> None:
    """Solved if it is right."""
    grade("solved" if _RIGHT in said else "unsolved")
