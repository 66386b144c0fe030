"""What the tool itself costs: cases without a domain, on pools whose ideal time is known.

Run with `pools/overhead-small.toml`, `-wide.toml` or `-episodes.toml`;
`python -m bench_suites.overhead` measures.
"""

from __future__ import annotations

import pytest

from bench_suites.overhead.conversation import N_TURNS, answer, follow_up, opening
from pytest_ultrapar import Llm, prefetch


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many cases as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def one_turn(llm: Llm, number: int) -> str:
    """A prompt of 0.9 kB and its answer."""
    return (await llm.chat([opening(number)])).text


@prefetch
async def six_turns(llm: Llm, number: int) -> int:
    """A conversation of six turns; returns how many answers came."""
    messages = [opening(number)]
    for turn in range(N_TURNS):
        reply = await llm.chat(messages)
        messages += [answer(reply.text), follow_up(turn)]
    return len(messages) // 2


def test_one_turn(one_turn: str) -> None:
    """The echo's answer came."""
    assert one_turn


def test_six_turns(six_turns: int) -> None:
    """All answers came."""
    assert six_turns == N_TURNS
