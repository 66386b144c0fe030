"""What a gate is measured on: cases whose last answer is right with a chance that the pool sets.

`python -m bench_suites.overhead gate` makes the pools and measures.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_suites.overhead.conversation import answer, follow_up, opening
from pytest_ultrapar import Llm, prefetch

N_TURNS = 2
_RIGHT = "TASK_COMPLETED"
"""What a persona with nothing left to do says; one that slips does not."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many cases for each model as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


@prefetch
async def last_answer(llm: Llm, number: int) -> str:
    """The last answer of a conversation of two turns."""
    messages = [opening(number)]
    for turn in range(N_TURNS):
        reply = await llm.chat(messages)
        messages += [answer(reply.text), follow_up(turn)]
    return reply.text


def test_gate(last_answer: str, grade: Callable[[str], None]) -> None:
    """Solved if the last answer is right."""
    grade("solved" if _RIGHT in last_answer else "unsolved")
