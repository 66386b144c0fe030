from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator.answer import Pieces, Whole, broken_off
from pytest_ultrapar.simulator.completion import count_usage
from pytest_ultrapar.simulator.exchange import Completion, Request
from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply
from pytest_ultrapar.simulator.wire.chat import Chat

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
CALLS = st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=3)
CHAT = Chat()
MESSAGES = [ChatMessage("user", "what is it")]


def events(pieces):
    """The documents of a stream whose framing is right."""
    content = b"".join(part for _, part in pieces).decode()
    assert content.endswith("\n\n")
    lines = content[:-2].split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def joined(chunks):
    """The message that the chunks add up to, and its finish reason, as a client makes it."""
    message = {"role": None, "content": None, "calls": []}
    reason = None
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert reason is None
            delta = choice["delta"]
            message["role"] = delta.get("role", message["role"])
            if "content" in delta:
                message["content"] = (message["content"] or "") + delta["content"]
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["calls"]):
                    assert call["type"] == "function"
                    message["calls"].append([call["id"], call["function"]["name"], ""])
                message["calls"][call["index"]][2] += call["function"].get("arguments", "")
            reason = choice["finish_reason"]
    return message, reason


@given(content=TEXT, calls=CALLS, told=st.booleans())
def test_stream_adds_up_to_the_completion_as_whole(content, calls, told):
    reply = PersonaReply(content, calls, "tool_calls" if calls else "stop")
    completion = Completion("n", [reply], count_usage([reply], MESSAGES))
    request = Request("m", MESSAGES, include_usage=told)
    whole = json.loads(CHAT.whole(request, completion))
    pieces = CHAT.pieces(request, completion)
    chunks = events(pieces)
    assert all((c["id"], c["model"]) == (whole["id"], whole["model"]) for c in chunks)
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    message, reason = joined(chunks)
    expected = whole["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message["content"] == expected["content"]
    assert message["calls"] == [
        [call["id"], call["function"]["name"], call["function"]["arguments"]]
        for call in expected.get("tool_calls", ())
    ]
    assert reason == whole["choices"][0]["finish_reason"]
    if told:
        assert chunks[-1]["choices"] == []
        assert [c["usage"] for c in chunks] == [None] * (len(chunks) - 1) + [whole["usage"]]
    else:
        assert not any("usage" in c for c in chunks)


@given(content=TEXT)
def test_pieces_come_in_order_from_the_first_part_of_the_latency_to_its_end(content):
    replies = [PersonaReply(content)]
    completion = Completion("n", replies, count_usage(replies, MESSAGES))
    pieces = CHAT.pieces(Request("m", MESSAGES), completion)
    shares = [share for share, _ in pieces]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.25, 1.0)
    assert len(pieces) <= 6


def test_answer_broken_off_is_half_of_it_with_the_length_of_all():
    broken = broken_off(Whole(b"0123456789"), "close")
    assert broken.pieces == ((1.0, b"01234"),)
    assert (b"content-length", b"10") in broken.headers
    assert broken.ending == "close"
    stream = Pieces(200, (), tuple((n / 4, b"%d" % n) for n in range(4)))
    assert broken_off(stream, "silence") == Pieces(200, (), stream.pieces[:2], "silence")
