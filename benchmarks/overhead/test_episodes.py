"""The cost of the tool for whole episodes: cases of six turns, each after the previous answer.

The test has its own file, since pytest always collects whole files. Run it with
`pools/overhead-episodes.toml`. `python -m benchmarks.overhead episodes` measures it.
"""

from __future__ import annotations

import pytest

from benchmarks.overhead.conversation import N_TURNS, answer, follow_up, opening
from pytest_ultrapar import Llm, prefetch

pytestmark = pytest.mark.ultrapar(expect={"turns": N_TURNS})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the requested number of cases."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def six_turns(llm: Llm, number: int) -> int:
    """Hold a conversation of six turns, and return the number of answers."""
    messages = [opening(number)]
    for turn in range(N_TURNS):
        reply = await llm.chat(messages)
        messages += [answer(reply.text), follow_up(turn)]
    return len(messages) // 2


def test_six_turns(six_turns: int) -> None:
    """Check that all answers arrived."""
    assert six_turns == N_TURNS
