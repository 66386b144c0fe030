"""What the simulated provider calls malformed is so to our client, too."""

from __future__ import annotations

from typing import get_args

import pytest

from pytest_ultrapar.apis.openai import ChatStream, decode_response
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.simulator.answer import Pieces, Whole
from pytest_ultrapar.simulator.faults.kinds import Malformed, MalformedForm
from pytest_ultrapar.simulator.wire.chat import Chat

LANE = "p/i/k"
WHOLE = b'{"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize("form", get_args(MalformedForm))
def test_every_malformed_form_is_malformed_to_the_client(form):
    answer, _ = Malformed(form).on(Chat()).of_answer(Whole(WHOLE), 1.0)
    assert decode_response(answer.body, LANE, 0.5).outcome == "malformed"


@pytest.mark.parametrize("form", sorted(set(get_args(MalformedForm)) - {"truncated"}))
def test_malformed_stream_is_malformed_unless_it_ends_well_without_a_piece_of_content(form):
    answer, _ = Malformed(form).on(Chat()).of_answer(Pieces(None, (), (), "complete"), 1.0)
    stream = ChatStream()
    for _, piece in answer.pieces:
        stream.feed(piece, 1.0)
    stream.end(1.0)
    found = stream.reply(LANE, 0.5)
    if form in {"null-content", "no-message"}:
        assert isinstance(found, Reply)
        assert found.text == ""
    else:
        assert found.outcome == "malformed"
