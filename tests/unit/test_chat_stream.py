"""A streamed answer gives the same reply as a whole answer."""

import json

import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import ChatStream
from pytest_ultrapar.apis.reply import Reply, ToolCall

LANE = "p/i/k"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: object = None, *, finish: str | None = None, index: int = 0, **more) -> bytes:
    choice = {"index": index, "finish_reason": finish}
    if delta is not None:
        choice["delta"] = delta
    return event({"object": "chat.completion.chunk", "choices": [choice], "usage": None} | more)


DONE = b"data: [DONE]\n\n"
USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


def result(*pieces: bytes) -> Reply | Failure:
    chat = ChatStream()
    for number, piece in enumerate(pieces):
        if not chat.done:
            chat.feed(piece, float(number))
    if not chat.done:
        chat.end(99.0)
    return chat.reply(LANE, 1.5)


def failure(*pieces: bytes) -> Failure:
    found = result(*pieces)
    assert isinstance(found, Failure)
    assert found.maybe_billed
    return found


def test_text_and_usage_are_put_together():
    reply = result(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, finish="stop"),
        USAGE,
        DONE,
    )
    assert reply == Reply("Hello", None, (), "stop", 7, 3, LANE, 1.5)


def test_last_usage_counts_if_every_piece_has_one():
    usage = {"prompt_tokens": 7, "completion_tokens": 1}
    reply = result(chunk({"content": "a"}, usage=usage), chunk({}, finish="stop"), USAGE, DONE)
    assert (reply.tokens_in, reply.tokens_out) == (7, 3)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_under_both_names(name):
    reply = result(
        chunk({name: "Let me "}), chunk({name: "see."}), chunk({"content": "4"}, finish="stop")
    )
    assert (reply.text, reply.reasoning) == ("4", "Let me see.")


def test_pieces_of_tool_calls_are_joined_by_index():
    def call(index, arguments, **more):
        function = {"arguments": arguments, **more.pop("function", {})}
        return chunk({"tool_calls": [{"index": index, "function": function, **more}]})

    reply = result(
        chunk({"role": "assistant", "content": None}),
        call(0, "", id="call_a", type="function", function={"name": "read"}),
        call(0, '{"path"'),
        call(1, "", id="call_b", type="function", function={"name": "write"}),
        call(0, ': "x"}'),
        call(1, "{}"),
        chunk({}, finish="tool_calls"),
        DONE,
    )
    assert reply.text == ""
    assert reply.tool_calls == (
        ToolCall("call_a", "read", '{"path": "x"}'),
        ToolCall("call_b", "write", "{}"),
    )


def test_tool_calls_without_an_index_are_separated_by_their_ids():
    def calls(*found):
        return chunk({"tool_calls": list(found)})

    reply = result(
        calls({"id": "a", "function": {"name": "f", "arguments": "{"}}),
        calls({"function": {"arguments": "}"}}),
        calls({"id": "b", "function": {"name": "g", "arguments": {"n": 1}}}),
        chunk({}, finish="tool_calls"),
    )
    assert reply.tool_calls == (ToolCall("a", "f", "{}"), ToolCall("b", "g", '{"n":1}'))


def test_refusal_is_the_text_of_the_reply():
    reply = result(
        chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, finish="stop")
    )
    assert (reply.refusal, reply.text) == ("I cannot.", "I cannot.")


def test_azures_pieces_without_choices_or_delta_are_skipped():
    filters = {"hate": {"filtered": False, "severity": "safe"}}
    reply = result(
        event({"choices": [], "prompt_filter_results": [{"content_filter_results": filters}]}),
        chunk({"content": "yes"}),
        chunk(content_filter_results=filters, content_filter_offsets={"check_offset": 1}),
        chunk({}, finish="stop"),
        DONE,
    )
    assert (reply.text, reply.finish_reason) == ("yes", "stop")


def test_content_filter_is_a_result_of_the_case():
    found = result(chunk({"content": "some"}), chunk({}, finish="content_filter"), DONE)
    assert (found.outcome, found.refused_kind) == ("refused", "content_filter")


def test_other_choices_are_ignored():
    reply = result(chunk({"content": "a"}), chunk({"content": "b"}, index=1), DONE)
    assert reply.text == "a"


def test_first_token_is_the_first_piece_with_content():
    def first(*pieces: bytes) -> float | None:
        chat = ChatStream()
        for number, piece in enumerate(pieces):
            chat.feed(piece, float(number))
        return chat.t_first_token_s

    begin = (event({"choices": []}), b": ping\n\n", chunk({"role": "assistant", "content": ""}))
    assert first(*begin) is None
    assert first(*begin, chunk({"content": "x"}), chunk({"content": "y"})) == 3.0
    assert first(*begin, chunk({"reasoning": "x"})) == 3.0
    assert first(*begin, chunk({"tool_calls": [{"index": 0}]})) == 3.0
    assert first(*begin, chunk({}, finish="stop"), USAGE, DONE) is None


@pytest.mark.parametrize("pieces", [[chunk({"content": "Hel"})], [DONE], [USAGE, DONE]])
def test_stream_that_ends_early_is_malformed(pieces):
    assert failure(*pieces).outcome == "malformed"


def test_stream_ends_with_a_finish_reason_or_the_last_event():
    assert result(chunk({"content": "a"}, finish="stop")).text == "a"
    assert result(chunk({"content": "a"}), b"data:[DONE]").text == "a"


def test_events_after_the_end_are_ignored():
    chat = ChatStream()
    chat.feed(chunk({"content": "a"}) + DONE + chunk({"content": "b"}), 0.0)
    assert chat.done
    assert chat.reply(LANE, 0.0).text == "a"


def test_error_in_vllms_older_form_is_read_as_an_error():
    found = failure(event({"object": "error", "message": "no", "type": "X", "code": 503}))
    assert found.outcome == "overload"
