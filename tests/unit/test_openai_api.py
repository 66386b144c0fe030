"""What is read of a whole answer, in all the shapes in which servers write it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import decode_response
from pytest_ultrapar.apis.reply import Reply, ToolCall

LANE = "p/i/k"


def decode(message: object, *, finish: str | None = "stop", **more) -> Reply | Failure:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "choices": [choice]} | more
    return decode_response(json.dumps(body).encode(), LANE, 0.5)


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


@pytest.mark.parametrize("finish", ["stop", None, "insufficient_system_resource", "tool_calls"])
@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"content": None, "refusal": None, "reasoning": None, "tool_calls": []},
    ],
)
def test_message_with_nothing_in_it_is_malformed(message, finish):
    found = decode(message, finish=finish, usage={"completion_tokens": 3})
    assert isinstance(found, Failure)
    assert (found.outcome, found.maybe_billed) == ("malformed", True)
    assert found.message == "the answer's message has no content, not even an empty one"


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
    "usage",
    [
        b"[]",
        b"NaN",
        b"-Infinity",
        b'"none"',
        b"5",
        b"true",
        b'{"prompt_tokens": NaN, "completion_tokens": -Infinity}',
        b'{"prompt_tokens": {}, "completion_tokens_details": []}',
        b'{"completion_tokens_details": {"reasoning_tokens": Infinity}}',
    ],
)
def test_usage_that_is_none_leaves_the_answer(usage):
    text = r"a \"NaN\" b, Infinity"
    answer = b'{"choices": [{"message": {"content": "%b"}}], "usage": %b}'
    reply = decode_response(answer % (text.encode(), usage), LANE, 0.5)
    assert reply.text == 'a "NaN" b, Infinity'
    assert (reply.tokens_in, reply.tokens_out, reply.reasoning_tokens) == (None, None, None)


def test_cut_answer_full_of_quotes_is_given_up_at_once():
    # Quadratic time would be hours here.
    answer = b'{"choices": [{"message": {"content": "' + rb"\"" * 500_000
    assert decode_response(answer, LANE, 0.5).outcome == "malformed"


@pytest.mark.parametrize(
    ("figure", "count"),
    [
        (b"1000000000", 1_000_000_000),
        (b"1000000001", None),
        (b"1e19", None),
        (b"1e30", None),
        (b"1e400", None),
        (b"9" * 1000, None),
        (b"-1", None),
        (b"-1e400", None),
        (b"true", None),
        (b'"12"', None),
        (b"[1]", None),
        (b"NaN", None),
        (b"Infinity", None),
    ],
)
def test_odd_count_is_not_known_and_spoils_no_answer(figure, count):
    usage = b'{"prompt_tokens": %b, "completion_tokens": 2}' % figure
    answer = b'{"choices": [{"message": {"content": "a"}}], "usage": %b}' % usage
    reply = decode_response(answer, LANE, 0.5)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("a", count, 2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"<html>busy</html>",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": "cut',
        b'{"choices": [{"message": {"content": "a\x00b"}}]}',
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"choices": [{"message": {"content": "' + b"\xff" * 2_000_000 + b'"}}]}',
    ],
    ids=[
        "empty",
        "null",
        "list",
        "html",
        "no choices",
        "null choices",
        "no message",
        "number",
        "cut",
        "raw nul",
        "deep objects",
        "deep lists",
        "large and broken",
    ],
)
def test_answer_that_cannot_be_read_is_malformed(body):
    found = decode_response(body, LANE, 0.5)
    assert isinstance(found, Failure)
    assert (found.outcome, found.maybe_billed) == ("malformed", True)
    assert len(found.message) < 300


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (rb'"a\ud800b"', r"a\ud800b"),
        (rb'"a\udc00\ud83d"', r"a\udc00\ud83d"),
        (rb'"\ud83d\ude00 \ud83d"', "\N{GRINNING FACE} \\ud83d"),
        (rb'"\\ud800 \ud800"', r"\ud800 \ud800"),
        (b'"caf\xe9"', r"caf\xe9"),
        (b'"\xed\xa0\x80"', r"\xed\xa0\x80"),
        (b'"\\u0000\\u001b[2J\\u202e"', "\x00\x1b[2J\u202e"),
    ],
)
def test_text_that_no_file_can_hold_is_kept_with_escapes(content, text):
    body = b'\xef\xbb\xbf{"choices": [{"message": {"content": ' + content + b"}}]}"
    found = decode_response(body, LANE, 0.5).text
    assert found == text
    assert found.encode().decode() == text


def test_long_text_of_code_is_not_taken_for_too_many_objects():
    text = '{"a": {"b": "\\"}"}}' * 50_000
    assert decode({"content": text}).text == text


def test_too_many_objects_are_not_read():
    body = b'{"choices": [' + b"{}," * 200_000 + b"{}]}"
    found = decode_response(body, LANE, 0.5)
    assert "more than 10000 objects" in found.message


@given(st.binary(max_size=300))
def test_any_bytes_have_a_result(body):
    assert isinstance(decode_response(body, LANE, 0.5), Failure | Reply)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_that_json_can_escape_can_be_stored(text):
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    found = decode_response(body, LANE, 0.5).text
    found.encode()
    if text.isascii():
        assert found == text
