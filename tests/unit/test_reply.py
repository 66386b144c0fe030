"""A reply as the next message of its conversation."""

from __future__ import annotations

import json

import msgspec

from pytest_ultrapar.apis.openai import decode_response, encode_request
from pytest_ultrapar.apis.reply import Reply, ToolCall
from pytest_ultrapar.pool.model import LaneId

LANE = LaneId("p/m/key0")


def reply_to(**message: object) -> Reply:
    body = json.dumps({"choices": [{"message": {"role": "assistant", **message}}]})
    reply = decode_response(body.encode(), LANE, 0.1)
    assert isinstance(reply, Reply)
    return reply


def test_message_of_a_text_is_the_text():
    assert reply_to(content="Yes.").message == {"role": "assistant", "content": "Yes."}


def test_message_with_calls_is_the_one_that_came():
    came = {
        "content": None,
        "tool_calls": [
            {"id": "a1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
            {"id": "b2", "type": "function", "function": {"name": "stop", "arguments": "{broken"}},
        ],
    }
    assert reply_to(**came).message == {"role": "assistant", **came}


def test_message_keeps_words_beside_calls_and_leaves_out_an_id_that_is_not_there():
    call = {"function": {"name": "look", "arguments": {"x": 1}}}
    assert reply_to(content="I look.", tool_calls=[call]).message == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}],
    }


def test_message_holds_what_was_said_and_not_what_was_thought():
    reply = reply_to(content="Yes.", reasoning_content="Hm.")
    assert reply.message == {"role": "assistant", "content": "Yes."}
    refusal = reply_to(content=None, refusal="I will not.")
    assert refusal.message == {"role": "assistant", "content": "I will not."}


def test_message_can_be_sent_and_changed_without_changing_the_reply():
    reply = reply_to(content="Yes.")
    reply.message["content"] = "No."
    assert reply.message["content"] == "Yes."
    assert b"Yes." in encode_request("m", [reply.message], {})


def test_reply_that_was_stored_has_its_message_again():
    reply = Reply("", None, (ToolCall("a1", "look", "{}"),), "tool_calls", 1, 2, LANE, 0.1)
    stored = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
    assert stored.message == reply.message
