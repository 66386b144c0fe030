from __future__ import annotations

import json

import pytest

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import Request
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.wire.chat import Chat

CHAT = Chat()


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
