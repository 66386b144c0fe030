"""What the tool itself costs over whole episodes: cases of six turns, each in need of the last.

In a file of its own, for pytest collects a whole file even if only one of its tests is asked for.
Run with `pools/overhead-episodes.toml`; `python -m benchmarks.overhead episodes` measures.
"""

from __future__ import annotations

import pytest

from benchmarks.overhead.conversation import N_TURNS, answer, follow_up, opening
from pytest_ultrapar import Llm, prefetch

pytestmark = pytest.mark.ultrapar(expect={"turns": N_TURNS})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many cases as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def six_turns(llm: Llm, number: int) -> int:
    """A conversation of six turns; returns how many answers came."""
    messages = [opening(number)]
    for turn in range(N_TURNS):
        reply = await llm.chat(messages)
        messages += [answer(reply.text), follow_up(turn)]
    return len(messages) // 2


def test_six_turns(six_turns: int) -> None:
    """All answers came."""
    assert six_turns == N_TURNS
