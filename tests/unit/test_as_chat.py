"""Requests of all APIs, converted to messages of chat completions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.as_chat import as_chat
from tests.unit.test_golden_apis import APIS, CHAT, golden


def said(api: str, name: str):
    request = golden(api)[name]["request"]
    return as_chat(
        next(request[field] for field in ("messages", "input", "contents") if field in request)
    )


@pytest.mark.parametrize("api", APIS)
def test_tool_calls_and_results_match_chat_completions(api):
    assert read(said(api, "results")) == read(CHAT["results"]["messages"])


def read(messages):
    """A copy with decoded arguments of calls, so that blanks do not matter."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return messages


@pytest.mark.parametrize("api", [api for api in APIS if api != "openai"])
def test_reasoning_and_calls_of_one_turn_are_one_message(api):
    user, turn, result = as_chat(golden(api)["reasoning"]["sent_back"])
    assert user == CHAT["reasoning"]["messages"][0]
    assert turn["reasoning"] == CHAT["reasoning"]["reply"]["reasoning"]
    assert [call["function"]["name"] for call in turn["tool_calls"]] == ["today"]
    assert result == {"role": "tool", "tool_call_id": "call_7", "content": "2026-03-01"}


def test_two_messages_of_the_model_stay_separate():
    turns = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert as_chat(turns) == turns


def test_images_stay_parts_of_the_users_message():
    for api in APIS:
        (message,) = said(api, "picture")
        assert message["role"] == "user"
        assert len(message["content"]) == 3


def test_fields_of_an_unexpected_type_are_ignored():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    for earlier in (None, "x", {}):
        turn = {"role": "assistant", "content": None, "tool_calls": earlier, "reasoning": earlier}
        (message,) = as_chat([turn, call])
        assert [one["id"] for one in message["tool_calls"]] == ["c"]


anything = st.recursive(
    st.none() | st.text(max_size=4) | st.sampled_from(["tool_use", "function_call", "reasoning"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "parts", "functionCall", "functionResponse", "text"]
            ),
            inner,
        )
    ),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.sampled_from(["type", "role", "content", "parts"]), anything)))
def test_any_items_are_read(items):
    assert isinstance(as_chat(items), list)
