"""The cost of the tool: cases of one turn on pools with a known ideal time.

Run them with `pools/overhead-small.toml` or `-wide.toml`. `python -m benchmarks.overhead` measures
them.
"""

from __future__ import annotations

import pytest

from benchmarks.overhead.conversation import opening
from pytest_ultrapar import Llm, prefetch


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the requested number of cases."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def one_turn(llm: Llm, number: int) -> str:
    """Send a prompt of 0.9 kB, and return the answer."""
    return (await llm.chat([opening(number)])).text


def test_one_turn(one_turn: str) -> None:
    """Check that the echo's answer arrived."""
    assert one_turn
