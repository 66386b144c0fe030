"""Answers and streams of all APIs: broken, hostile and odd ones, and errors."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import api_named
from pytest_ultrapar.apis.reply import Reply

LANE = "p/i/k"


@dataclass(frozen=True)
class Wire:
    """Templates of an API's answer with one text: `TEXT` and `USAGE` stand for JSON.

    Attributes:
        whole: The answer that is not streamed.
        begin: The events before the text.
        piece: An event with a piece of the text.
        end: The events after the text. `TEXT` is the whole text.
        call: An event that begins tool call `N`.
        figures: A usage with `FIGURE` tokens in the prompt and 2 in the answer.
    """

    whole: str
    begin: str
    piece: str
    end: str
    call: str
    figures: str

    def body(self, text: str = '"a"', usage: str = "{}") -> bytes:
        return self.whole.replace("TEXT", text).replace("USAGE", usage).encode()

    def events(self, pieces: list[str], usage: str = "{}", *, ends: bool = True) -> bytes:
        events = self.begin.splitlines()
        events += [self.piece.replace("TEXT", json.dumps(piece)) for piece in pieces]
        if ends:
            text = json.dumps("".join(pieces))
            end = self.end.replace("TEXT", text).replace("USAGE", usage)
            events += end.splitlines()
        return b"".join(f"data: {event}\n\n".encode() for event in events if event)


WIRES = {
    "openai": Wire(
        whole='{"choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT},'
        ' "finish_reason": "stop"}], "usage": USAGE}',
        begin='{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}',
        piece='{"choices": [{"index": 0, "delta": {"content": TEXT}}]}',
        end='{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n'
        '{"choices": [], "usage": USAGE}\n[DONE]',
        call='{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": N, "id": "c",'
        ' "function": {"name": "f", "arguments": ""}}]}}]}',
        figures='{"prompt_tokens": FIGURE, "completion_tokens": 2}',
    ),
    "anthropic": Wire(
        whole='{"type": "message", "content": [{"type": "text", "text": TEXT}],'
        ' "stop_reason": "end_turn", "usage": USAGE}',
        begin='{"type": "message_start", "message": {"content": []}}\n'
        '{"type": "content_block_start", "index": 0,'
        ' "content_block": {"type": "text", "text": ""}}',
        piece='{"type": "content_block_delta", "index": 0,'
        ' "delta": {"type": "text_delta", "text": TEXT}}',
        end='{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE}\n'
        '{"type": "message_stop"}',
        call='{"type": "content_block_start", "index": N,'
        ' "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}}}',
        figures='{"input_tokens": FIGURE, "output_tokens": 2}',
    ),
    "openai-responses": Wire(
        whole='{"object": "response", "status": "completed", "error": null, "output": [{"type":'
        ' "message", "content": [{"type": "output_text", "text": TEXT}]}], "usage": USAGE}',
        begin='{"type": "response.created", "response": {"status": "in_progress", "output": []}}',
        piece='{"type": "response.output_text.delta", "delta": TEXT}',
        end='{"type": "response.completed", "response": {"status": "completed", "output": [{"type":'
        ' "message", "content": [{"type": "output_text", "text": TEXT}]}], "usage": USAGE}}',
        call="",
        figures='{"input_tokens": FIGURE, "output_tokens": 2}',
    ),
    "gemini": Wire(
        whole='{"candidates": [{"content": {"parts": [{"text": TEXT}], "role": "model"},'
        ' "finishReason": "STOP"}], "usageMetadata": USAGE}',
        begin="",
        piece='{"candidates": [{"content": {"parts": [{"text": TEXT}], "role": "model"}}]}',
        end='{"candidates": [{"finishReason": "STOP"}], "usageMetadata": USAGE}',
        call='{"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]}',
        figures='{"promptTokenCount": FIGURE, "candidatesTokenCount": 2}',
    ),
}
over_apis = pytest.mark.parametrize("name", WIRES)


def whole(name: str, body: bytes) -> Reply | Failure:
    return api_named(name).reply(body, LANE, 0.5)


def streamed(name: str, *pieces: bytes) -> Reply | Failure:
    stream = api_named(name).stream()
    for number, piece in enumerate(pieces):
        if not stream.done:
            stream.feed(piece, float(number))
    if not stream.done:
        stream.end(99.0)
    assert stream.done
    return stream.reply(LANE, 1.5)


def both(name: str, text: str, usage: str = "{}") -> list[Reply | Failure]:
    wire = WIRES[name]
    return [
        whole(name, wire.body(json.dumps(text), usage)),
        streamed(name, wire.events([text[:1], text[1:]], usage)),
    ]


@over_apis
@pytest.mark.parametrize("usage", ["[]", "NaN", '"none"', "null"])
def test_invalid_usage_does_not_affect_the_answer(name, usage):
    for reply in both(name, 'a "NaN" b, Infinity', usage):
        assert reply.text == 'a "NaN" b, Infinity'
        assert (reply.tokens_in, reply.tokens_out, reply.reasoning_tokens) == (None, None, None)


@over_apis
@pytest.mark.parametrize(
    ("figure", "count"),
    [
        ("9.0", 9),
        ("1000000000", 1_000_000_000),
        ("1000000001", None),
        ("1e400", None),
        ("9" * 1000, None),
        ("true", None),
        ('"12"', None),
        ("NaN", None),
    ],
)
def test_odd_token_count_is_unknown_and_does_not_affect_the_answer(name, figure, count):
    for reply in both(name, "a", WIRES[name].figures.replace("FIGURE", figure)):
        assert (reply.text, reply.tokens_in, reply.tokens_out) == ("a", count, 2)


@pytest.mark.slow
@over_apis
def test_truncated_answer_full_of_quotes_is_read_in_linear_time(name):
    # Quadratic time means hours here.
    body, _, _ = WIRES[name].whole.partition("TEXT")
    assert whole(name, body.encode() + b'"' + rb"\"" * 500_000).outcome == "malformed"


@over_apis
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"<html>busy</html>",
        b'{"content": 5, "output": 5, "candidates": 5}',
        b'{"content": [5], "output": [5], "candidates": [5]}',
        b'{"content": [{"type": "text", "text": "cut',
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=["empty", "null", "list", "object", "html", "no list", "numbers", "cut", "deep", "lists"],
)
def test_body_that_is_not_an_answer_is_malformed_and_may_be_billed(name, body):
    for found in (whole(name, body), streamed(name, b"data: " + body + b"\n\n")):
        assert isinstance(found, Failure)
        assert (found.outcome, found.maybe_billed) == ("malformed", True)


@over_apis
def test_answer_with_an_invalid_text_is_malformed(name):
    assert whole(name, WIRES[name].body("5")).outcome == "malformed"
    assert whole(name, WIRES[name].body('"\x00"')).outcome == "malformed"
    body = WIRES[name].body('"TEXT"').replace(b"TEXT", b"\xff" * 2_000_000)
    assert whole(name, body).outcome == "malformed"


@over_apis
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (rb'"\ud800."', "\\ud800."),
        (rb'"\udfff\ud83d\ude00"', "\\udfff\U0001f600"),
        (b'"\xff\xfe"', "\\xff\\xfe"),
        (b'"\xed\xa0\x80"', "\\xed\\xa0\\x80"),
    ],
)
def test_invalid_unicode_in_a_text_is_escaped(name, content, text):
    body = b"\xef\xbb\xbf" + WIRES[name].body('"TEXT"').replace(b'"TEXT"', content)
    assert whole(name, body).text == text
    wire = WIRES[name]
    events = wire.events(["@"]).replace(b'"@"', content)
    assert streamed(name, events).text == text


CALLS = {
    "anthropic": b'{"content": [{"type": "tool_use", "id": "c", "name": "f",'
    b' "input": {"a": "@"}}]}',
    "gemini": b'{"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args":'
    b' {"a": "@"}}}]}, "finishReason": "STOP"}]}',
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("content", [b"\xff", rb"\ud800"])
def test_invalid_unicode_in_arguments_is_escaped(name, content):
    (call,) = whole(name, CALLS[name].replace(b"@", content)).tool_calls
    assert json.loads(call.arguments) == {"a": content.decode("ascii", "backslashreplace")}


@over_apis
def test_braces_inside_a_text_do_not_count_as_objects(name):
    text = '{"a": {"b": "\\"}"}}' * 50_000
    assert whole(name, WIRES[name].body(json.dumps(text))).text == text


@over_apis
def test_answer_with_too_many_objects_fails(name):
    body = WIRES[name].body(usage="[" + "{}," * 200_000 + "{}]")
    assert "more than 10000 objects" in whole(name, body).message


@over_apis
def test_too_many_tool_calls_end_a_stream(name):
    wire = WIRES[name]
    if not wire.call:
        # The last event has all calls, and the limit of a whole answer applies to it.
        return
    calls = [wire.call.replace("N", str(number)) for number in range(1001)]
    found = streamed(name, b"".join(f"data: {call}\n\n".encode() for call in calls))
    assert found.outcome == "malformed"
    assert "more than 1000" in found.message


@over_apis
@pytest.mark.parametrize("ends", [False, True])
def test_stream_without_its_end_is_malformed(name, ends):
    found = streamed(name, WIRES[name].events(["Hel", "lo"], ends=ends))
    if ends:
        assert (found.text, found.finish_reason) == ("Hello", "stop")
    else:
        assert (found.outcome, found.maybe_billed) == ("malformed", True)


@over_apis
def test_first_token_is_the_first_piece_with_content(name):
    stream, wire = api_named(name).stream(), WIRES[name]
    stream.feed(b": ping\n\n" + wire.events([], ends=False), 1.0)
    assert stream.t_first_token_s is None
    piece = wire.piece.replace("TEXT", '"x"').encode()
    for now_s in (2.0, 3.0):
        stream.feed(b"data: " + piece + b"\n\n", now_s)
    assert stream.t_first_token_s == 2.0


ERRORS = [
    ({"type": "overloaded_error", "message": "Overloaded"}, "rate"),
    ({"type": "rate_limit_error", "message": "input tokens per minute"}, "rate"),
    ({"type": "authentication_error", "message": "invalid x-api-key"}, "auth"),
    ({"type": "billing_error", "message": "no funds"}, "quota"),
    ({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens"}, "refused"),
    ({"code": "invalid_image_url", "message": "no such image"}, "bad_request"),
    ({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down"}, "rate"),
    ({"code": 503, "status": "UNAVAILABLE", "message": "The model is overloaded."}, "overload"),
    ({"code": "429", "message": "late"}, "rate"),
    ({"code": 400, "type": "BadRequestError", "message": "bad"}, "bad_request"),
    ({"code": 99999999999999999999, "message": "odd"}, "overload"),
    ({}, "overload"),
    ([1], "overload"),
    ("boom", "overload"),
]


@over_apis
@pytest.mark.parametrize(("error", "outcome"), ERRORS)
def test_error_in_the_answer_is_classified_like_an_http_error(name, error, outcome):
    said = {"type": "error", "error": error}
    event = b"data: " + json.dumps(said).encode() + b"\n\n"
    for found in (
        whole(name, json.dumps(said).encode()),
        streamed(name, WIRES[name].events(["a"], ends=False), event),
    ):
        assert isinstance(found, Failure)
        assert (found.outcome, found.maybe_billed) == (outcome, True)
        assert "the answer contains an error, treated as HTTP " in found.message


@over_apis
@given(st.binary(max_size=300))
def test_any_bytes_give_a_reply_or_a_failure(name, body):
    assert isinstance(whole(name, body), Failure | Reply)
    assert isinstance(streamed(name, body), Failure | Reply)
    assert isinstance(streamed(name, b"data: " + body), Failure | Reply)


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
FIELDS = (
    *("type", "content", "text", "thinking", "input", "id", "usage", "stop_reason", "delta"),
    *("index", "message", "content_block", "response", "output", "status", "error", "summary"),
    *("call_id", "name", "arguments", "candidates", "parts", "functionCall", "finishReason"),
)
KINDS = (
    *("message", "text", "tool_use", "thinking", "message_start", "content_block_start"),
    *("content_block_delta", "message_delta", "message_stop", "error", "response.completed"),
    *("response.failed", "function_call", "reasoning", "completed", "incomplete", "STOP"),
)
shapes = st.recursive(
    scalars | st.sampled_from(KINDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@over_apis
@given(bodies=st.lists(st.dictionaries(st.sampled_from(FIELDS), shapes), min_size=1, max_size=4))
def test_any_fields_of_any_type_give_a_reply_or_a_failure(name, bodies):
    sent = [json.dumps(body).encode() for body in bodies]
    found = [whole(name, sent[0]), streamed(name, *(b"data: " + one + b"\n\n" for one in sent))]
    for result in found:
        assert isinstance(result, Failure | Reply)
        if isinstance(result, Reply):
            said: dict[str, Any] = result.message
            json.dumps(said)
            api_named(name).request("m", [said], {})


GOLDEN = Path(__file__).with_name("golden")


@over_apis
@given(data=st.data())
def test_damaged_answers_give_a_result_that_can_be_stored(name, data):
    answers = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    wire = answers[data.draw(st.sampled_from(sorted(answers)))]
    body = json.dumps(wire["answer"]).encode()
    events = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in wire["events"])
    for sent, read in ((body, whole), (events, streamed)):
        place = data.draw(st.integers(0, len(sent)))
        damage = data.draw(st.sampled_from([b"\xff", b"NaN", b"", rb"\ud800", b"null", b"}", b'"']))
        until = place + data.draw(st.integers(0, 6))
        found = read(name, sent[:place] + damage + sent[until:])
        assert isinstance(found, Failure | Reply)
        if isinstance(found, Reply):
            msgspec.json.encode(found)
            api_named(name).request("m", [found.message], {})


@over_apis
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_that_json_can_escape_can_be_stored(name, text):
    for found in both(name, text):
        found.text.encode()
        if text.isascii():
            assert found.text == text


@over_apis
@given(text=st.text(), cuts=st.lists(st.integers(0, 900)))
def test_any_text_survives_any_cut_of_the_stream(name, text, cuts):
    body = WIRES[name].events([text[:3], text[3:]])
    ends = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert streamed(name, *(body[a:b] for a, b in itertools.pairwise(ends))).text == text


def test_invalid_bytes_in_an_unknown_field_do_not_break_the_message():
    begin = b'data: {"type":"message_start","message":{"content":[]}}\n\n'
    block = b'data: {"type":"content_block_start","index":0,"content_block":%b}\n\n'
    end = b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}\n\n'
    odd = block % b'{"type":"thinking","thinking":"so","of_theirs":"\xff"}'
    found = streamed("anthropic", begin, odd, end, b'data: {"type":"message_stop"}\n\n')
    assert isinstance(found, Reply)
    json.dumps(found.message)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("anthropic", {"content": [{"type": "tool_use", "id": "", "name": "f", "input": {}}]}),
        (
            "openai-responses",
            {
                "status": "completed",
                "output": [{"type": "function_call", "name": "f", "arguments": "{}"}],
            },
        ),
    ],
)
def test_tool_call_without_an_id_is_malformed(name, body):
    found = whole(name, json.dumps(body).encode())
    assert isinstance(found, Failure)
    assert (found.outcome, "has no id" in found.message) == ("malformed", True)
