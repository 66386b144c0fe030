"""A reply as the next message of its conversation."""

from __future__ import annotations

import json

import msgspec
import pytest

from pytest_ultrapar.apis.openai import API, ChatStream, encode_request
from pytest_ultrapar.apis.reply import Reply, ToolCall
from pytest_ultrapar.engine.answers import Answer, read_answer
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.pool.model import LaneId

LANE = LaneId("p/m/key0")
ENDPOINT = Endpoint(LANE, "p", "m", "key0", "http://127.0.0.1:1", "sk-secret", "m", 5.0)


def reply_to(**message: object) -> Reply:
    body = json.dumps({"choices": [{"message": {"role": "assistant", **message}}]})
    reply = API.reply(body.encode(), LANE, 0.1)
    assert isinstance(reply, Reply)
    return reply


def test_message_of_a_text_contains_the_text():
    assert reply_to(content="Yes.").message == {"role": "assistant", "content": "Yes."}


def test_message_with_calls_equals_the_answers_message():
    came = {
        "content": None,
        "tool_calls": [
            {"id": "a1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
            {"id": "b2", "type": "function", "function": {"name": "stop", "arguments": "{broken"}},
        ],
    }
    assert reply_to(**came).message == {"role": "assistant", **came}


def test_message_keeps_text_next_to_calls_and_omits_a_missing_id():
    call = {"function": {"name": "look", "arguments": {"x": 1}}}
    assert reply_to(content="I look.", tool_calls=[call]).message == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}],
    }


def test_message_contains_the_content_without_the_reasoning():
    reply = reply_to(content="Yes.", reasoning_content="Hm.")
    assert reply.message == {"role": "assistant", "content": "Yes."}
    refusal = reply_to(content=None, refusal="I will not.")
    assert refusal.message == {"role": "assistant", "content": "I will not."}


def test_message_can_be_sent_and_changed_without_changing_the_reply():
    reply = reply_to(content="Yes.")
    reply.message["content"] = "No."
    assert reply.message["content"] == "Yes."
    assert b"Yes." in encode_request("m", [reply.message], {})


def test_stored_reply_has_the_same_message():
    reply = Reply("", None, (ToolCall("a1", "look", "{}"),), "tool_calls", 1, 2, LANE, 0.1)
    stored = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
    assert stored.message == reply.message


# -- other fields of an answer ---------------------------------------------------------------------

ANSWER = {
    "id": "chatcmpl-7",
    "model": "m-2026-01-01",
    "service_tier": "flex",
    "choices": [
        {
            "index": n,
            "message": {"role": "assistant", "content": text},
            "finish_reason": end,
            "logprobs": {"content": [{"token": text, "logprob": -0.5}]},
        }
        for n, (text, end) in enumerate([("one", "stop"), ("two", "length"), ("six", "stop")])
    ],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    },
}


def as_stream(answer):
    chat, pieces = ChatStream(), []
    for choice in answer["choices"]:
        delta = {**choice, "delta": choice["message"], "message": None}
        piece = {**answer, "choices": [delta], "usage": None}
        pieces.append(b"data: " + json.dumps(piece).encode() + b"\n\n")
    end = {"choices": [], "usage": answer["usage"]}
    pieces.append(b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n")
    for piece in pieces:
        chat.feed(piece, 0.0)
    return read_answer(Answer(200, {}, b"".join(pieces), 0.0, chat), ENDPOINT, 0.5)


def as_whole(answer):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_answer(Answer(200, {}, body, 0.0), ENDPOINT, 0.5)


@pytest.mark.parametrize("read", [as_whole, as_stream])
def test_reply_has_all_choices_and_metadata_of_the_answer(read):
    reply = read(ANSWER)
    said = [(one.text, one.finish_reason, one.tokens_out) for one in reply.choices]
    assert said == [("one", "stop", 3), ("two", "length", 3), ("six", "stop", 3)]
    assert (reply.id, reply.model, reply.stop_reason) == ("chatcmpl-7", "m-2026-01-01", "stop")
    assert (reply.cached_tokens, reply.tokens_in) == (4, 9)
    assert reply.logprobs == {"content": [{"token": "one", "logprob": -0.5}]}
    assert reply.message == {"role": "assistant", "content": "one"}


def test_reply_has_its_body_as_plain_data():
    assert as_whole(ANSWER).raw == ANSWER
    assert [piece.get("service_tier") for piece in as_stream(ANSWER).raw] == ["flex"] * 3 + [None]
    assert Reply("", None, (), "stop", 1, 2, LANE, 0.1).raw is None


def test_log_probabilities_of_a_stream_are_joined():
    pieces = [{**ANSWER["choices"][0], "logprobs": {"content": [n]}} for n in range(3)]
    assert as_stream({**ANSWER, "choices": pieces}).logprobs == {"content": [0, 1, 2]}
    odd = {**ANSWER, "choices": [{**pieces[0], "index": "0"}]}
    assert (as_whole(odd).logprobs, as_stream(odd).logprobs) == ({"content": [0]},) * 2
    plain = {**ANSWER, "choices": [{**ANSWER["choices"][0], "logprobs": None}]}
    assert (as_whole(plain).logprobs, as_stream(plain).logprobs) == (None, None)


def test_returned_reply_is_restored_with_all_fields():
    reply = as_whole(ANSWER)
    back = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
    assert back == reply
    assert (back.raw, back.id, back.choices[1].text) == (reply.raw, "chatcmpl-7", "two")


@pytest.mark.parametrize("odd", [7, None, ["x"]])
def test_invalid_id_does_not_invalidate_the_answer(odd):
    reply = as_whole({**ANSWER, "id": odd, "model": odd})
    assert (reply.text, reply.id, reply.model) == ("one", None, None)


def test_choice_without_a_message_is_empty_unless_it_is_the_first():
    choices = [ANSWER["choices"][0], {"index": 1, "finish_reason": "content_filter"}]
    reply = as_whole({**ANSWER, "choices": choices})
    assert [(one.text, one.finish_reason) for one in reply.choices] == [
        ("one", "stop"),
        ("", "content_filter"),
    ]


@pytest.mark.parametrize("text", [rb"\ud800", b"\xff", b"\\u0000"])
def test_body_with_any_bytes_can_be_stored(text):
    body = json.dumps(ANSWER).encode().replace(b"flex", text)
    reply = as_whole(body)
    back = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
    assert back.raw["choices"] == ANSWER["choices"]


def test_stream_of_choices_without_end_is_malformed():
    chat = ChatStream()
    for n in range(1_001):
        piece = {"choices": [{"index": n, "delta": {"content": "x"}}]}
        chat.feed(b"data: " + json.dumps(piece).encode() + b"\n\n", 0.0)
    assert chat.reply(LANE, 0.5).outcome == "malformed"


def test_repr_shows_the_fields_that_are_set():
    reply = Reply("hi", None, (), "stop", 1, None, LANE, 0.1, body="{}")
    assert (
        repr(reply)
        == f"Reply(text='hi', finish_reason='stop', tokens_in=1, lane={LANE!r}, latency_s=0.1)"
    )
