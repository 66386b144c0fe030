"""What the tool itself costs: cases of one turn, on pools whose ideal time is known.

Run with `pools/overhead-small.toml` or `-wide.toml`; `python -m benchmarks.overhead` measures.
"""

from __future__ import annotations

import pytest

from benchmarks.overhead.conversation import opening
from pytest_ultrapar import Llm, prefetch


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many cases as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def one_turn(llm: Llm, number: int) -> str:
    """A prompt of 0.9 kB and its answer."""
    return (await llm.chat([opening(number)])).text


def test_one_turn(one_turn: str) -> None:
    """The echo's answer came."""
    assert one_turn
