"""Every API answers any body in its own form, and never with a 500."""

from __future__ import annotations

import asyncio
import json
import os
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ultrapar.simulator.app import Simulator
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.faults.timeline import Timeline
from pytest_ultrapar.simulator.log import LogFile
from pytest_ultrapar.simulator.served_pool import served_providers
from pytest_ultrapar.system.clock import MonotonicClock
from tests.simulated_pool import simulated_pool

SIMULATOR = Simulator(
    served_providers(simulated_pool()).values(),
    log=LogFile(Path(os.devnull), [], 0.0),
    clock=MonotonicClock(),
    timeline=Timeline(),
    script=FaultScript(),
)
TOKEN = b"sim-lab-key0"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
SAID = [{"role": "user", "content": "hello"}]
BEARER = (b"authorization", b"Bearer " + TOKEN)
ASKED = {
    "/v1/chat/completions": {
        "model": "m",
        "messages": [
            *SAID,
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        ],
        "n": 2,
        "max_tokens": 3,
        "stop": ["l"],
        "stream": False,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    },
    "/v1/responses": {
        "model": "m",
        "input": [
            *SAID,
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]},
        ],
        "instructions": "x",
        "store": False,
        "stream": False,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        "tool_choice": "auto",
        "max_output_tokens": 9,
    },
    "/v1/messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "x"}],
        "messages": [
            *SAID,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
        ],
        "stop_sequences": ["l"],
        "stream": False,
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "f"},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "/v1beta/models/m:generateContent": {
        "contents": [
            {"role": "user", "parts": [{"text": "x"}, {"inlineData": {"data": "AA"}}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
        ],
        "systemInstruction": {"parts": [{"text": "x"}]},
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {
            "responseSchema": {"type": "OBJECT", "nullable": True, "properties": {}},
        },
    },
}
ASKED["/v1beta/models/m:streamGenerateContent"] = ASKED["/v1beta/models/m:generateContent"]
HEADERS = {
    "/v1/messages": [(b"x-api-key", TOKEN), (b"anthropic-version", b"2023-06-01")],
    "/v1beta/models/m:generateContent": [(b"x-goog-api-key", TOKEN)],
    "/v1beta/models/m:streamGenerateContent": [(b"x-goog-api-key", TOKEN)],
}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just({"type": "any", "$ref": "#"}),
    st.lists(st.integers(), max_size=3),
)


def answer(path, body):
    """Status and body of the answer to a request."""

    async def run():
        sent = []
        ended = asyncio.Event()
        received = iter([{"type": "http.request", "body": body}])

        async def receive():
            if (message := next(received, None)) is not None:
                return message
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                ended.set()

        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/lab{path}",
            "query_string": b"",
            "headers": HEADERS.get(path, [BEARER]),
        }
        await SIMULATOR(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)

    return asyncio.run(run())


def places(document, at=()):
    """Every place in a document, as the path of steps to it."""
    yield at
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for step, value in inner:
        if isinstance(value, dict | list):
            yield from places(value, (*at, step))
        else:
            yield (*at, step)


def with_junk(document, at, junk):
    if not at:
        return junk
    changed = deepcopy(document)
    inner = changed
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = junk
    return changed


def check(path, body):
    status, content = answer(path, body)
    assert status in {200, 400, 404}, (status, content)
    if status == 200:
        assert content
        return status
    error = json.loads(content)["error"]
    assert error["message"]
    if path == "/v1/messages":
        assert error["type"] in {"invalid_request_error", "not_found_error"}
    elif "Content" in path:
        assert (error["code"], error["status"]) in {(400, "INVALID_ARGUMENT"), (404, "NOT_FOUND")}
    else:
        assert set(error) == {"message", "type", "param", "code"}
    return status


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", {"logprobs": True}),
        ("/v1/responses", {"top_logprobs": 2}),
        ("/v1/responses", {"store": True}),
        ("/v1/responses", {"previous_response_id": "resp_1"}),
        ("/v1/responses", {"conversation": "conv_1"}),
        ("/v1/responses", {"background": True}),
        ("/v1/responses", {"include": ["message.output_text.logprobs"]}),
        ("/v1beta/models/m:generateContent", {"generationConfig": {"responseLogprobs": True}}),
        ("/v1beta/models/m:generateContent", {"generationConfig": {"candidateCount": 2}}),
    ],
)
def test_features_that_are_not_simulated_are_refused(path, field):
    assert check(path, json.dumps({**ASKED[path], **field}).encode()) == 400


def test_each_example_is_answered():
    for path, document in ASKED.items():
        assert check(path, json.dumps(document).encode()) == 200
        assert check(path, json.dumps({**document, "stream": True}).encode()) == 200


@settings(deadline=None)
@given(data=st.data(), path=st.sampled_from(sorted(ASKED)), junk=JUNK)
def test_junk_in_any_place_is_answered(data, path, junk):
    document = ASKED[path]
    at = data.draw(st.sampled_from(list(places(document))))
    check(path, json.dumps(with_junk(document, at, junk)).encode())


@settings(deadline=None)
@given(path=st.sampled_from(sorted(ASKED)), body=st.binary(max_size=100))
def test_any_bytes_are_answered(path, body):
    assert check(path, body) in {400, 404}


def test_deep_bodies_are_answered():
    for path in ASKED:
        for body in (b"[" * 100_000, b'{"a":' * 100_000, b'{"model":"m","messages":' + b"[" * 9000):
            assert check(path, body) == 400
