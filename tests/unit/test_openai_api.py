"""Whole answers, in all the forms in which servers write them."""

import json

import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import API
from pytest_ultrapar.apis.reply import Reply, ToolCall

LANE = "p/i/k"


def decode(message: object, *, finish: str | None = "stop", **more) -> Reply | Failure:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "choices": [choice]} | more
    return API.reply(json.dumps(body).encode(), LANE, 0.5)


def test_plain_answer_is_read():
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    assert decode({"role": "assistant", "content": "Hi", "refusal": None}, usage=usage) == Reply(
        "Hi", None, (), "stop", 9, 2, LANE, 0.5
    )


def test_content_may_be_a_list_of_parts():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "one "},
        {"type": "text", "text": "two"},
    ]
    assert decode({"content": parts}).text == "one two"


@pytest.mark.parametrize("content", [None, "", []])
def test_empty_content_with_tool_calls_is_an_answer(content):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    reply = decode({"content": content, "tool_calls": [call]}, finish="tool_calls")
    assert (reply.text, reply.tool_calls) == ("", (ToolCall("c1", "f", '{"a":'),))


def test_tool_call_may_have_no_id_and_arguments_as_an_object():
    reply = decode({"tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, "é"]}}}]})
    assert reply.tool_calls == (ToolCall("", "f", r'{"a":[1, "\u00e9"]}'),)
    reply = decode({"tool_calls": [{"id": None, "function": {"name": "f", "arguments": None}}]})
    assert reply.tool_calls == (ToolCall("", "f", ""),)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_under_both_names(name):
    assert decode({"content": None, name: "hm"}) == Reply(
        "", "hm", (), "stop", None, None, LANE, 0.5
    )


def test_refusal_is_the_text_of_the_reply():
    reply = decode({"content": None, "refusal": "No."})
    assert (reply.text, reply.refusal) == ("No.", "No.")


NOTHING_IN_IT = pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"content": None, "refusal": None, "reasoning": None, "tool_calls": []},
    ],
)


@pytest.mark.parametrize("finish", [None, "tool_calls"])
@NOTHING_IN_IT
def test_empty_message_is_malformed_without_a_stop_of_the_model(message, finish):
    found = decode(message, finish=finish, usage={"completion_tokens": 3})
    assert isinstance(found, Failure)
    assert (found.outcome, found.maybe_billed) == ("malformed", True)
    assert found.message == "the answer's message has no content, not even empty content"


@pytest.mark.parametrize("finish", ["stop", "eos_token"])
@NOTHING_IN_IT
def test_empty_message_is_an_answer_if_the_model_stopped(message, finish):
    reply = decode(message, finish=finish, usage={"completion_tokens": 3})
    assert (reply.text, reply.finish_reason, reply.tokens_out) == ("", finish, 3)


@NOTHING_IN_IT
def test_failed_generation_is_a_failure_of_the_server(message):
    found = decode(message, finish="insufficient_system_resource", usage={"completion_tokens": 3})
    assert (found.outcome, found.maybe_billed) == ("overload", True)
    assert "'insufficient_system_resource'" in found.message


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        # A model that stops immediately sends an empty string.
        ({"content": ""}, "stop"),
        ({"content": []}, "stop"),
        ({"content": None}, "length"),
        ({"content": None, "function_call": {"name": "f"}}, "function_call"),
        # vLLM and DeepSeek, if the model wrote only reasoning.
        ({"content": None, "reasoning_content": ""}, "stop"),
        ({"content": None, "reasoning": "hm", "tool_calls": []}, "stop"),
    ],
)
def test_message_without_text_is_an_answer_if_the_model_left_it_empty(message, finish):
    reply = decode(message, finish=finish)
    assert (reply.text, reply.finish_reason) == ("", finish)


def test_message_without_text_is_an_answer_if_reasoning_was_counted():
    usage = {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 5}}
    assert decode({"content": None}, usage=usage).text == ""
    usage = {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 0}}
    assert decode({"content": None}, finish=None, usage=usage).outcome == "malformed"


def test_content_filter_is_a_result_of_the_case():
    found = decode({"content": None}, finish="content_filter")
    assert (found.outcome, found.refused_kind) == ("refused", "content_filter")


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 9.0, "completion_tokens": 2.0}, (9, 2, None)),
        ({"prompt_tokens": -1, "completion_tokens": None}, (None, None, None)),
        (
            {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 4}},
            (None, 5, 4),
        ),
        ({"completion_tokens_details": None}, (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_usage_is_counted_if_the_answer_has_it(usage, counts):
    reply = decode({"content": "a"}, usage=usage)
    assert (reply.tokens_in, reply.tokens_out, reply.reasoning_tokens) == counts


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": "a\x00b"}}]}',
    ],
)
def test_answer_that_cannot_be_read_is_malformed(body):
    found = API.reply(body, LANE, 0.5)
    assert isinstance(found, Failure)
    assert (found.outcome, found.maybe_billed) == ("malformed", True)
    assert len(found.message) < 300
