"""The cases with which the gate is measured. The pool sets the chance of a right answer.

`python -m benchmarks.overhead gate` makes the pools and measures.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.overhead.conversation import opening
from pytest_ultrapar import Llm, prefetch

_RIGHT = "TASK_COMPLETED"
"""A persona writes this word if all is done, but not if it makes a mistake."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the requested number of cases for each model."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def said(llm: Llm, number: int) -> str:
    """Get an answer, which may be right."""
    return (await llm.chat([opening(number)])).text


def test_gate(said: str, grade: Callable[[str], None]) -> None:
    """Grade a right answer as solved."""
    grade("solved" if _RIGHT in said else "unsolved")
