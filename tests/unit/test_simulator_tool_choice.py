from __future__ import annotations

import json

import pytest

from pytest_ultrapar.apis.server_json import UNREADABLE
from pytest_ultrapar.simulator.api_error import RefusedError
from pytest_ultrapar.simulator.wire.chat import Chat

PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "n": {"type": ["integer", "null"]},
        "flag": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "more": {"type": "string"},
    },
    "required": ["text", "n", "flag", "kind", "unknown"],
}
TOOLS = [
    {"type": "function", "function": {"name": "f"}},
    {"type": "function", "function": {"name": "g", "parameters": PARAMETERS}},
]


def decoded(**fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields}
    return Chat().read(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ("required", "f"),
        ({"type": "function", "function": {"name": "g"}}, "g"),
        ("auto", None),
        ("none", None),
        (None, None),
    ],
)
def test_forced_function_is_the_named_one_or_the_first(choice, name):
    forced = decoded(tools=TOOLS, tool_choice=choice).forced_tool
    assert (forced and forced.name) == name


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": "required", "tools": None},
        {"tool_choice": "required", "tools": []},
        {"tool_choice": {"function": {"name": "h"}}, "tools": TOOLS},
        {"tool_choice": "required", "tools": [{"function": {}}]},
        {"tool_choice": "required", "tools": "x"},
        {"tool_choice": 7},
    ],
)
def test_choice_without_its_function_is_refused(fields):
    with pytest.raises((RefusedError, *UNREADABLE), match="tool"):
        decoded(**fields)
