"""Time the parser of replies; run with `pytest tests/benchmarks --benchmark-only`.

Compare the rows of 100 kB and 400 kB of a text: four times the time is linear, sixteen
times is quadratic.
"""

from __future__ import annotations

import pytest

from bench_suites.workflow.conversation import says_it_is_done
from bench_suites.workflow.reply_parser import parse_reply

TEXTS = {
    "prose": "I will now read the file and then go on with the next step of the plan. ",
    "open": "<tool_call>",
    "broken": '<tool_call>file_operations_reader {"source": "',
    "nested": "<tool_call>a " + '{"a":' * 5000,
    "angles": "< ",
    "done": "not until the task is done ",
}


@pytest.mark.parametrize("n_bytes", [100_000, 400_000])
@pytest.mark.parametrize("kind", TEXTS)
def test_parser_benchmark(benchmark, kind, n_bytes):
    text = (TEXTS[kind] * (n_bytes // len(TEXTS[kind]) + 1))[:n_bytes]

    def read():
        return parse_reply(text), says_it_is_done(text)

    parsed, _ = benchmark.pedantic(read, rounds=3)
    assert len(parsed.text) == n_bytes


def test_parser_of_an_ordinary_reply_benchmark(benchmark):
    text = 'Next, the file.\n<tool_call>file_operations_reader {"source": "data/a.csv"}</tool_call>'
    (action,) = benchmark(parse_reply, text).actions
    assert action.arguments == {"source": "data/a.csv"}
