from __future__ import annotations

import json
from unittest.mock import ANY

import pytest

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.apis.sanitise import UNREADABLE
from pytest_ultrapar.simulator.api_error import RefusedError
from pytest_ultrapar.simulator.exchange import Request
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.wire.chat import Chat

CHAT = Chat()
IMAGE = {"type": "image_url", "image_url": {"url": "data:x"}}


def test_request_parts_null_content_and_tool_calls_are_read():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "model": "m",
        "seed": 7,
        "temperature": 0.5,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "b", "tool_call_id": "c1"},
        ],
    }
    assert CHAT.read(json.dumps(body).encode()) == Request(
        "m",
        [
            ChatMessage("user", "a", attachments=(ANY,)),
            ChatMessage("assistant", "", tool_calls=(ToolCall("c1", "f", "{}"),)),
            ChatMessage("tool", "b", tool_call_id="c1"),
        ],
        7,
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "Input data was truncated"),
        (b"{", "Input data was truncated"),
        (b"[]", "got `array`"),
        (b'{"model": "m"}', "messages"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', "`model` is missing"),
        (b'{"model": "m", "messages": []}', "`messages` is empty"),
        (b'{"model": "m", "messages": [{"content": "x"}]}', "role"),
        (b'{"model": 1, "messages": [{"role": "user"}]}', "model"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}', "utf-8"),
        (b"[" * 100_000, "got `array`"),
        (b'{"model": "m", "messages": [{"role": "user", "content": 5}]}', "content"),
    ],
)
def test_request_that_is_none_is_refused_with_why(body, says):
    """`test_simulator_bodies` has the status, a 400 for whatever cannot be read."""
    with pytest.raises((RefusedError, *UNREADABLE)) as refused:
        CHAT.read(body)
    assert says in str(refused.value)
