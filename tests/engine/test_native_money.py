"""What requests of SDKs cost, by the file in which the broker remembers it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_ultrapar.broker.settings import SPENDING_FILE
from pytest_ultrapar.errors import InfraError
from tests.engine.native_play import EVENT_STREAM, event, play
from tests.engine.test_native_streams import Server, read
from tests.raw_server import json_response

BUDGET = "budget = 1"
PRICES = "price_per_mtok_in = 3\nprice_per_mtok_out = 11\nmax_tokens = 100\n"
SAID = {"message": {"content": "fine"}, "finish_reason": "stop"}


def last(directory: Path, word: str) -> int:
    """Units of the last line of a kind: the first lease of an episode comes back unused."""
    text = (directory / SPENDING_FILE).read_text()
    found = [line.split(" ") for line in text.split("\n")]
    return [int(line[2]) for line in found if line[0] == word][-1]


def played(tmp_path: Path, server: Server, scene: Any) -> None:
    play(tmp_path, server, scene, provider=BUDGET, model=PRICES)


@pytest.mark.parametrize("code", ["429", "400", "401", "503"])
def test_stream_that_fails_after_it_began_costs_what_was_reserved(tmp_path, code):
    error = json.dumps({"error": {"code": code, "message": "no more"}}).encode()
    server = Server((EVENT_STREAM, event("Hel"), 0.05, b"data: " + error + b"\n\n"))

    async def scene(told):
        async with told.stream() as answer:
            with contextlib.suppress(InfraError):
                await read(answer)
        await told.free()

    played(tmp_path, server, scene)
    assert last(tmp_path, "settle") == last(tmp_path, "reserve") > 0


@pytest.mark.parametrize("said", [{"prompt_tokens": 5}, {"completion_tokens": 6}, {}])
def test_answer_that_says_half_of_its_tokens_costs_what_was_reserved(tmp_path, said):
    server = Server((json_response({"choices": [SAID], "usage": said}),))

    async def scene(told):
        await told.ask(max_tokens=50)

    played(tmp_path, server, scene)
    assert last(tmp_path, "settle") == last(tmp_path, "reserve") > 0


def test_answer_that_says_both_costs_what_it_says(tmp_path):
    said = {"prompt_tokens": 5, "completion_tokens": 6}
    server = Server((json_response({"choices": [SAID], "usage": said}),))

    async def scene(told):
        await told.ask(max_tokens=50)

    played(tmp_path, server, scene)
    assert last(tmp_path, "settle") == (5 * 3 + 6 * 11) * 10**6
