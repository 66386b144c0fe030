from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.openai import API, ChatStream
from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator.answer import Pieces, Whole, broken_off
from pytest_ultrapar.simulator.completion import count_usage
from pytest_ultrapar.simulator.exchange import Completion, Request
from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply
from pytest_ultrapar.simulator.wire.chat import Chat

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
CALLS = st.lists(
    st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=3, unique_by=lambda call: call.call_id
)
CHAT = Chat()
MESSAGES = [ChatMessage("user", "what is it")]


@given(content=TEXT, calls=CALLS, told=st.booleans())
def test_stream_adds_up_to_the_whole_completion(content, calls, told):
    reply = PersonaReply(content, calls, "tool_calls" if calls else "stop")
    completion = Completion("n", [reply], count_usage([reply], MESSAGES))
    request = Request("m", MESSAGES, include_usage=told)
    whole = API.reply(CHAT.whole(request, completion), "p/i/k", 0.0)
    stream = ChatStream()
    for _, piece in CHAT.pieces(request, completion):
        stream.feed(piece, 0.0)
    assert stream.done
    found = stream.reply("p/i/k", 0.0)
    usage = (whole.tokens_in, whole.tokens_out) if told else (None, None)
    assert (found.tokens_in, found.tokens_out) == usage
    for name in ("id", "model", "text", "tool_calls", "finish_reason"):
        assert getattr(found, name) == getattr(whole, name)


@given(content=TEXT)
def test_pieces_are_spread_over_the_latency_in_order(content):
    replies = [PersonaReply(content)]
    completion = Completion("n", replies, count_usage(replies, MESSAGES))
    pieces = CHAT.pieces(Request("m", MESSAGES), completion)
    shares = [share for share, _ in pieces]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.25, 1.0)
    assert len(pieces) <= 6


def test_aborted_answer_is_half_a_body_with_the_full_content_length():
    broken = broken_off(Whole(b"0123456789"), "close")
    assert broken.pieces == ((1.0, b"01234"),)
    assert (b"content-length", b"10") in broken.headers
    assert broken.ending == "close"
    stream = Pieces(200, (), tuple((n / 4, b"%d" % n) for n in range(4)))
    assert broken_off(stream, "silence") == Pieces(200, (), stream.pieces[:2], "silence")
