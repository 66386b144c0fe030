"""What the tool itself costs: cases without a domain, on pools whose ideal time is known.

Run with `pools/overhead-small.toml`, `-wide.toml` or `-episodes.toml`;
`python -m bench_suites.overhead` measures.
"""

from __future__ import annotations

import pytest

from pytest_ultrapar import Llm, prefetch

TURNS = {"one": 1, "six": 6}
FILLER = "The quick brown fox jumps over the lazy dog near the quiet river bank. " * 12


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many cases as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def one_turn(llm: Llm, number: int) -> str:
    """A prompt of 0.9 kB and its answer."""
    return (await llm.chat([{"role": "user", "content": f"{number}: {FILLER}"}])).text


@prefetch
async def six_turns(llm: Llm, number: int) -> int:
    """A conversation of six turns; returns how many answers came."""
    messages = [{"role": "user", "content": f"{number}: {FILLER}"}]
    for turn in range(TURNS["six"]):
        reply = await llm.chat(messages)
        messages += [
            {"role": "assistant", "content": reply.text},
            {"role": "user", "content": f"go on, {turn}"},
        ]
    return len(messages) // 2


def test_one_turn(one_turn: str) -> None:
    """The echo's answer came."""
    assert one_turn


def test_six_turns(six_turns: int) -> None:
    """All answers came."""
    assert six_turns == TURNS["six"]
