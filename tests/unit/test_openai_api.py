"""What is read of a whole answer, in all the shapes in which servers write it."""

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


def test_plain_answer():
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    assert decode({"role": "assistant", "content": "Hi", "refusal": None}, usage=usage) == Reply(
        "Hi", None, (), "stop", 9, 2, LANE, 0.5
    )


def test_content_may_be_parts():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "one "},
        {"type": "text", "text": "two"},
    ]
    assert decode({"content": parts}).text == "one two"


@pytest.mark.parametrize("content", [None, "", []])
def test_empty_content_with_tool_calls(content):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    reply = decode({"content": content, "tool_calls": [call]}, finish="tool_calls")
    assert (reply.text, reply.tool_calls) == ("", (ToolCall("c1", "f", '{"a":'),))


def test_tool_call_without_id_and_with_arguments_as_an_object():
    reply = decode({"tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, "é"]}}}]})
    assert reply.tool_calls == (ToolCall("", "f", r'{"a":[1, "\u00e9"]}'),)
    reply = decode({"tool_calls": [{"id": None, "function": {"name": "f", "arguments": None}}]})
    assert reply.tool_calls == (ToolCall("", "f", ""),)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_has_two_names(name):
    assert decode({"content": None, name: "hm"}) == Reply(
        "", "hm", (), "stop", None, None, LANE, 0.5
    )


def test_refusal_is_what_the_model_said():
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
def test_message_with_nothing_in_it_is_malformed_where_something_is_missing(message, finish):
    found = decode(message, finish=finish, usage={"completion_tokens": 3})
    assert isinstance(found, Failure)
    assert (found.outcome, found.maybe_billed) == ("malformed", True)
    assert found.message == "the answer's message has no content, not even an empty one"


@pytest.mark.parametrize("finish", ["stop", "eos_token"])
@NOTHING_IN_IT
def test_model_that_ends_with_nothing_to_say_is_measured(message, finish):
    reply = decode(message, finish=finish, usage={"completion_tokens": 3})
    assert (reply.text, reply.finish_reason, reply.tokens_out) == ("", finish, 3)


@NOTHING_IN_IT
def test_generation_that_failed_is_the_servers_failure(message):
    found = decode(message, finish="insufficient_system_resource", usage={"completion_tokens": 3})
    assert (found.outcome, found.maybe_billed) == ("overload", True)
    assert "'insufficient_system_resource'" in found.message


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        # An empty string is what a model says that ends at once.
        ({"content": ""}, "stop"),
        ({"content": []}, "stop"),
        ({"content": None}, "length"),
        ({"content": None, "function_call": {"name": "f"}}, "function_call"),
        # vLLM and DeepSeek, where all that the model wrote was reasoning.
        ({"content": None, "reasoning_content": ""}, "stop"),
        ({"content": None, "reasoning": "hm", "tool_calls": []}, "stop"),
    ],
)
def test_message_without_text_is_an_answer_where_the_model_made_it_so(message, finish):
    reply = decode(message, finish=finish)
    assert (reply.text, reply.finish_reason) == ("", finish)


def test_message_without_text_is_an_answer_where_reasoning_was_counted():
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
def test_usage_is_counted_where_it_is_said(usage, counts):
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
