"""The requests and answers that an episode keeps until they are stored."""

from __future__ import annotations

import json

import pytest

from pytest_ultrapar.apis.openai import ChatStream
from pytest_ultrapar.engine.answers import Answer, read_answer
from pytest_ultrapar.engine.conversation import Conversation
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.exchanges import ExchangeLog, part_name, said
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.store.redact import Redactor

KEY = "sk-canary-7f3a9c1e5b"
ENDPOINT = Endpoint(LaneId("p/m/k"), "p", "m", "k", "http://127.0.0.1:1", KEY, "m", 5.0)
ASKED = b'{"messages":[]}'


def streamed(*deltas, finish="stop"):
    """A streamed answer, and the result of reading it."""
    chat, came = ChatStream(), b""
    for delta in [*deltas, {}]:
        choice = {"index": 0, "delta": delta, "finish_reason": None if delta else finish}
        came += b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    chat.feed(came, 0.0)
    chat.end(0.0)
    answer = Answer(200, {}, came, 0.0, chat)
    return answer, read_answer(answer, ENDPOINT, 0.1)


def kept(answer, result):
    conversation = Conversation(exchanges=ExchangeLog(part_name, Redactor([KEY]).bytes))
    conversation.tried(0, ENDPOINT, ASKED, answer, result)
    return said(conversation.noted(), {}.__getitem__)


def test_stream_is_kept_with_its_events():
    answer, reply = streamed({"content": "Hel"}, {"content": "lo"})
    (one,) = kept(answer, reply)
    assert (one.is_stream, one.came, one.exchange.status) == (True, answer.body, 200)


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content", "refusal"])
def test_stream_with_a_secret_in_any_field_is_kept_as_a_whole_answer(field):
    pieces = [{field: KEY[at : at + 4]} for at in range(0, len(KEY), 4)]
    (one,) = kept(*streamed({"content": "so: "}, *pieces))
    assert not one.is_stream
    # The journal can mask the secret, because the answer is whole.
    assert Redactor([KEY]).bytes(one.came) != one.came


def test_secret_in_the_arguments_of_a_streamed_call_is_found():
    pieces = [
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": KEY[at : at + 4]}}]}
        for at in range(0, len(KEY), 4)
    ]
    (one,) = kept(*streamed(*pieces, finish="tool_calls"))
    assert not one.is_stream


def test_filtered_stream_is_not_kept_in_pieces():
    pieces = [{"content": KEY[at : at + 4]} for at in range(0, len(KEY), 4)]
    answer, failure = streamed(*pieces, finish="content_filter")
    (one,) = kept(answer, failure)
    assert (one.came, one.exchange.status) == (b"", 200)


def test_last_attempt_without_an_answer_is_kept():
    conversation = Conversation(exchanges=ExchangeLog(part_name, lambda data: data))
    down = Answer(500, {}, b"<html>down</html>", 0.0)
    conversation.tried(0, ENDPOINT, ASKED, down, read_answer(down, ENDPOINT, 0.1))
    conversation.tried(0, ENDPOINT, ASKED, None, None)
    (one,) = said(conversation.noted(), {}.__getitem__)
    assert (one.exchange.status, one.sent, one.came) == (None, ASKED, b"")
