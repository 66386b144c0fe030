from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.openai import decode_response, encode_request
from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import Completion, Request
from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply
from pytest_ultrapar.simulator.tokens import count_usage
from pytest_ultrapar.simulator.wire import openai
from pytest_ultrapar.simulator.wire.chat import Chat

CHAT = Chat()
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


def written(reply, messages):
    completion = Completion("n", [reply], count_usage([reply], messages))
    return CHAT.whole(Request("m", messages), completion)


@given(texts=st.lists(TEXT, min_size=1, max_size=4))
def test_request_of_our_own_client_is_read_as_written(texts):
    body = encode_request("m", [{"role": "user", "content": text} for text in texts], {})
    assert CHAT.read(body) == Request("m", [ChatMessage("user", text) for text in texts], None)


def test_request_parts_null_content_and_tool_calls_are_read():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "model": "m",
        "seed": 7,
        "temperature": 0.5,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "b", "tool_call_id": "c1"},
        ],
    }
    assert CHAT.read(json.dumps(body).encode()) == Request(
        "m",
        [
            ChatMessage("user", "a"),
            ChatMessage("assistant", "", tool_calls=(ToolCall("c1", "f", "{}"),)),
            ChatMessage("tool", "b", tool_call_id="c1"),
        ],
        7,
    )


def test_request_takes_the_deployment_of_the_path():
    body = b'{"model": "other", "messages": [{"role": "user", "content": ""}]}'
    request = CHAT.read(body, name="mine")
    assert isinstance(request, Request)
    assert request.api_name == "mine"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no chat-completions request"),
        (b"{", "no chat-completions request"),
        (b"[]", "no chat-completions request"),
        (b'{"model": "m"}', "messages"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', "`model` is missing"),
        (b'{"model": "m", "messages": []}', "`messages` is empty"),
        (b'{"model": "m", "messages": [{"content": "x"}]}', "role"),
        (b'{"model": 1, "messages": [{"role": "user"}]}', "model"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}', "no chat-comp"),
        (b"[" * 100_000, "no chat-completions request"),
    ],
)
def test_request_that_is_none_is_a_400_that_says_why(body, says):
    error = CHAT.read(body)
    assert isinstance(error, ApiError)
    assert error.status == 400
    assert says in error.message


@given(body=st.binary(max_size=200))
def test_request_of_any_bytes_never_raises(body):
    assert isinstance(CHAT.read(body), ApiError)


@given(heard=TEXT, said=TEXT)
def test_completion_is_read_by_our_own_client(heard, said):
    reply = PersonaReply(said)
    body = written(reply, [ChatMessage("user", heard)])
    read = decode_response(body, LaneId("p/m/k"), 0.1)
    assert read.text == said
    assert read.finish_reason == "stop"
    assert read.tool_calls == ()
    assert read.tokens_in == (len(heard) + 3) // 4
    assert read.tokens_out == (len(said) + 3) // 4


def test_completion_carries_tool_calls_in_the_apis_shape():
    call = ToolCall("c1", "f", '{"x": 1}')
    reply = PersonaReply("", [call], "tool_calls")
    body = written(reply, [])
    assert decode_response(body, LaneId("p/m/k"), 0.1).tool_calls == (call,)
    choice = json.loads(body)["choices"][0]
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["type"] == "function"
    assert choice["finish_reason"] == "tool_calls"


def test_models_are_listed_in_the_apis_shape():
    listed = json.loads(openai.API.models(["a", "b"]))
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["a", "b"]
