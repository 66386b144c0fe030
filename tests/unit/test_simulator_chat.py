from __future__ import annotations

import json
from unittest.mock import ANY

from pytest_ultrapar.apis.reply import ToolCall
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
