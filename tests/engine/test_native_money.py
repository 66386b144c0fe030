"""The cost of SDK requests, read from the file in which the broker stores it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_ultrapar.errors import InfraError
from pytest_ultrapar.store.run_directory import SPENDING_FILE
from tests.engine.native_play import EVENT_STREAM, event, play
from tests.engine.test_native_streams import Server, read
from tests.raw_server import json_response, response

BUDGET = "budget = 1"
PRICES = "price_per_mtok_in = 3\nprice_per_mtok_out = 11\nmax_tokens = 100\n"
SAID = {"message": {"content": "fine"}, "finish_reason": "stop"}


def last(directory: Path, word: str) -> int:
    """Units of the last line of a kind: an episode's first lease comes back unused."""
    text = (directory / SPENDING_FILE).read_text()
    found = [line.rstrip(";").split(" ") for line in text.split("\n")]
    return [int(line[2]) for line in found if line[0] == word][-1]


def played(tmp_path: Path, server: Server, scene: Any) -> None:
    play(tmp_path, server, scene, provider=BUDGET, model=PRICES)


@pytest.mark.parametrize("code", ["429", "400", "401", "503"])
def test_stream_that_fails_after_its_start_costs_the_reservation(tmp_path, code):
    error = json.dumps({"error": {"code": code, "message": "no more"}}).encode()
    server = Server((EVENT_STREAM, event("Hel"), 0.05, b"data: " + error + b"\n\n"))

    async def scene(told):
        async with told.stream() as answer:
            with contextlib.suppress(InfraError):
                await read(answer)
        await told.free()

    played(tmp_path, server, scene)
    assert last(tmp_path, "settle") == last(tmp_path, "reserve") > 0


def ask(tmp_path: Path, usage: dict[str, int]) -> None:
    """Send one request; its answer reports this usage."""

    async def scene(told):
        await told.ask(max_tokens=50)

    played(tmp_path, Server((json_response({"choices": [SAID], "usage": usage}),)), scene)


@pytest.mark.parametrize("said", [{"prompt_tokens": 5}, {"completion_tokens": 6}, {}])
def test_answer_with_half_of_its_usage_costs_the_reservation(tmp_path, said):
    ask(tmp_path, said)
    assert last(tmp_path, "settle") == last(tmp_path, "reserve") > 0


def test_answer_with_its_whole_usage_costs_that_usage(tmp_path):
    ask(tmp_path, {"prompt_tokens": 5, "completion_tokens": 6})
    assert last(tmp_path, "settle") == (5 * 3 + 6 * 11) * 10**6


IMAGE = "https://img.example/a.png"
OPENAI, RESPONSES = "https://api.openai.com/v1", "https://api.openai.com/v1/responses"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"
PICTURES = [
    ("openai", f"{OPENAI}/chat/completions", "messages", "image_url", {"url": IMAGE}),
    ("openai-responses", RESPONSES, "input", "image_url", IMAGE),
    ("openai-responses", RESPONSES, "input", "file_id", "file-1"),
    (
        "anthropic",
        "https://api.anthropic.com/v1/messages",
        "messages",
        "source",
        {"type": "url", "url": IMAGE},
    ),
]


def reserved_for(tmp_path: Path, api: str, url: str, *bodies: Any) -> list[int]:
    """Units reserved for each of two requests, which are refused."""
    refusal = (response(b"{}", status=b"400 Bad"),)
    # A lane check follows the first one.
    server = Server(refusal, (), refusal)
    found = []

    async def scene(told):
        for body in bodies:
            await told.client.post(url, json={"model": "m", **body})
            found.append(last(tmp_path, "reserve"))

    model = f'{PRICES}instances = ["theirs"]'
    play(tmp_path, server, scene, provider=BUDGET, model=model, api=api, path="")
    return found


@pytest.mark.parametrize("case", PICTURES)
def test_reservation_includes_a_picture_that_is_given_by_its_url(tmp_path, case):
    api, url, field, name, value = case
    kind = "input_image" if api == "openai-responses" else "image"

    def body(part: Any) -> Any:
        return {field: [{"role": "user", "content": [part]}], "max_tokens": 10}

    text = {"type": "text", "text": "x" * 100}
    plain, shown = reserved_for(tmp_path, api, url, body(text), body({"type": kind, name: value}))
    assert shown - plain >= 800 * 3 * 10**6


@pytest.mark.parametrize(
    ("api", "url", "body", "more"),
    [
        ("openai", f"{OPENAI}/chat/completions", {"messages": [], "max_tokens": 10}, {"n": 5}),
        ("openai", f"{OPENAI}/completions", {"prompt": "a", "max_tokens": 10}, {"best_of": 5}),
        ("openai", f"{OPENAI}/completions", {"max_tokens": 10}, {"prompt": ["a"] * 5}),
        (
            "gemini",
            GEMINI,
            {"contents": [], "generationConfig": {"maxOutputTokens": 10}},
            {"generationConfig": {"maxOutputTokens": 10, "candidateCount": 5}},
        ),
    ],
    ids=["n", "best_of", "prompts", "candidateCount"],
)
def test_reservation_includes_each_requested_answer(tmp_path, api, url, body, more):
    one, five = reserved_for(tmp_path, api, url, body, {**body, **more})
    assert five - one >= 4 * 10 * 11 * 10**6


def test_reservation_includes_context_stored_by_the_provider(tmp_path):
    said = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "fine"}]}],
        "usage": {"input_tokens": 4000, "output_tokens": 50},
    }
    server = Server((json_response(said),), (json_response(said),), (json_response(said),))
    found = []

    async def scene(told):
        for more in ({}, {"previous_response_id": "resp_1"}, {"conversation": {"id": "conv_0"}}):
            body = {"model": "m", "input": "Hi", "max_output_tokens": 10, **more}
            await told.client.post(RESPONSES, json=body)
            found.append(last(tmp_path, "reserve"))

    play(tmp_path, server, scene, provider=BUDGET, model=PRICES, api="openai-responses", path="")
    plain, goes_on, of_others = found
    assert goes_on - plain >= 4050 * 3 * 10**6
    # Its length is unknown: reserve as much as for the longest prompt so far.
    assert of_others - plain >= 4000 * 3 * 10**6


def test_tokens_written_to_a_cache_have_their_own_price(tmp_path):
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "fine"}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 700,
            "cache_read_input_tokens": 0,
            "output_tokens": 6,
        },
    }

    async def scene(told):
        url = "https://api.anthropic.com/v1/messages"
        await told.client.post(url, json=told.body(max_tokens=9))
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.tokens_in, attempt.cache_write_tokens) == (705, 700)

    model = f"{PRICES}price_per_mtok_cache_write = 4\n"
    server = Server((json_response(said),))
    play(tmp_path, server, scene, provider=BUDGET, model=model, api="anthropic", path="")
    assert last(tmp_path, "settle") == (5 * 3 + 700 * 4 + 6 * 11) * 10**6
