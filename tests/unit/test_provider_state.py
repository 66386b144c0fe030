"""The provider state that requests name and that answers create."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.provider_state import flaw_of_request, state_made, state_named
from pytest_ultrapar.apis.registry import api_named
from pytest_ultrapar.apis.reply import Reply


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


FILE = "https://g.example/files/1"
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"input": "Hi", "previous_response_id": "resp_1"}, {"resp_1"}),
        ({"input": "Hi", "conversation": "conv_1"}, {"conv_1"}),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, {"msg_1"}),
        ({"input": [{"content": [{"type": "input_file", "file_id": "file-1"}]}]}, {"file-1"}),
        ({"messages": [{"content": [{"file": {"file_id": "file-1"}}]}]}, {"file-1"}),
        ({"tools": [{"vector_store_ids": ["vs_1", "vs_2"]}]}, {"vs_1", "vs_2"}),
        ({"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}, {"cntr_1"}),
        ({"container": {"id": "container_1", "skills": []}}, {"container_1"}),
        ({"messages": [{"content": [{"source": {"file_id": "file_1"}}]}]}, {"file_1"}),
        ({"cachedContent": "cachedContents/1"}, {"cachedContents/1"}),
        ({"contents": [{"parts": [{"fileData": {"fileUri": FILE}}]}]}, {FILE}),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "https://i.example/a.png"}}]}]}, set()),
        ({"previous_response_id": 5, "file_id": {"id": 5}}, set()),
        ({"input": 'say "previous_response_id": "resp_1"'}, set()),
        ([], set()),
    ],
)
def test_state_named_by_a_request_is_found(body, named):
    assert state_named(encoded(body)) == named


def test_state_of_a_response_is_recognised_in_later_requests():
    output = [REASONING, {"type": "message", "id": "msg_1", "content": []}]
    response = {"id": "resp_1", "object": "response", "output": output, "conversation": None}
    made = state_made(encoded(response))
    assert {"resp_1", "msg_1", "rs_1"} < made
    event = encoded({"type": "response.completed", "response": response})
    assert state_made(event) == made
    assert state_made(b"event: x\ndata: {}\n\ndata: " + event) == made
    for later in (
        {"previous_response_id": "resp_1"},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [REASONING]},
        # SDKs may leave the id out: the encrypted content identifies the item.
        {"input": [{**REASONING, "id": None}]},
    ):
        named = state_named(encoded(later))
        assert len(named) == 1
        assert named < made
    another = {"input": [{**REASONING, "encrypted_content": "gBBB"}]}
    assert not state_named(encoded(another)) & made


@pytest.mark.parametrize(
    ("answer", "made"),
    [
        ({"id": "file-1", "object": "file", "purpose": "user_data"}, {"file-1"}),
        ({"id": "conv_1", "object": "conversation"}, {"conv_1"}),
        ({"id": "vs_1", "object": "vector_store"}, {"vs_1"}),
        ({"type": "message", "content": [], "container": {"id": "container_1"}}, {"container_1"}),
        ({"id": "chatcmpl-1", "object": "chat.completion", "choices": []}, set()),
        ({"type": "message", "id": "msg_1", "content": []}, set()),
        ({"object": "response", "output": 5, "id": 5}, set()),
        ({"response": 5, "object": "response"}, set()),
    ],
)
def test_state_created_by_an_answer_is_found(answer, made):
    assert state_made(encoded(answer)) >= made
    assert bool(state_made(encoded(answer))) == bool(made)


def test_encrypted_reasoning_in_a_chat_is_tied_to_its_answer():
    api = api_named("openai-responses")
    answer = encoded({"status": "completed", "output": [REASONING]})
    reply = api.reply(answer, "p/i/k", 1.0)
    assert isinstance(reply, Reply)
    user = {"role": "user", "content": "Hi"}
    body = api.request("m", [user, reply.message, user], {})
    assert state_named(body) <= state_made(answer)
    assert not state_named(api.request("m", [user], {}))


def test_background_mode_is_refused():
    assert "background mode" in flaw_of_request({"input": "Hi", "background": True})
    for body in ({"background": False}, {"background": None}, {"metadata": {"background": True}}):
        assert flaw_of_request(body) is None


@given(st.binary(max_size=50), st.sampled_from([b'"file_id"', b'"object": "response"', b""]))
def test_any_bytes_are_read(content, words):
    for body in (content + words, b"{" + words + b":" + content + b"}"):
        assert isinstance(state_named(body), frozenset)
        assert isinstance(state_made(body), frozenset)


def test_answer_with_too_many_objects_is_not_read():
    answer = b'{"object": "response", "id": "resp_1", "output": [' + b"{}," * 200_000 + b"{}]}"
    assert state_made(answer) == frozenset()


def test_deep_nesting_is_ignored():
    assert state_named(b'{"file_id":' + b"[" * 100_000 + b"]" * 100_000 + b"}") == frozenset()
