"""What the simulated provider calls malformed is so to our client, too."""

from __future__ import annotations

from typing import get_args

import pytest

from pytest_ultrapar.apis.openai import ChatStream
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.simulator.answer import Pieces
from pytest_ultrapar.simulator.faults.kinds import Malformed, MalformedForm
from pytest_ultrapar.simulator.wire.chat import Chat

LANE = "p/i/k"


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
