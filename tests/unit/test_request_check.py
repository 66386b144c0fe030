"""The checks of a request before it is sent."""

from __future__ import annotations

import json

import pytest

from pytest_ultrapar.engine.endpoints import Endpoint, conversation_of, request_body
from pytest_ultrapar.pool.model import LaneId
from tests.unit.test_llm_leases import Stage, fine

HALF = "half \ud83d of it"
SHOWN = "half \\ud83d of it"


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ({"role": "user", "content": HALF}, {"role": "user", "content": SHOWN}),
        (
            {"role": "user", "content": [{"type": "text", "text": HALF}]},
            {"role": "user", "content": [{"type": "text", "text": SHOWN}]},
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {HALF: [HALF, 1, None]}}]},
            {"role": "assistant", "tool_calls": [{"function": {SHOWN: [SHOWN, 1, None]}}]},
        ),
    ],
)
def test_half_a_surrogate_pair_is_sent_and_stored_as_an_escape(said, sent):
    stage = Stage(fine())
    stage.play(lambda llm: llm.chat([said], user=HALF))
    (body,) = map(json.loads, stage.server.bodies)
    assert body["messages"] == [sent]
    assert body["user"] == SHOWN
    kept = "".join(message.content for message in stage.llm.conversation.messages)
    assert kept.encode().decode() == kept


def test_body_escapes_half_a_surrogate_pair():
    endpoint = Endpoint(
        LaneId("p/a/k0"), "p", "a", "k0", "http://127.0.0.1:1", "sk-secret", "m", 5.0
    )
    said = [{"role": "user", "content": HALF}]
    body = json.loads(request_body(endpoint, said, {"user": HALF, "é": "🙂 \\ud800"}))
    assert body["messages"] == [{"role": "user", "content": SHOWN}]
    assert (body["user"], body["é"]) == (SHOWN, "🙂 \\ud800")
    assert said == [{"role": "user", "content": HALF}]


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ("Hi", [{"role": "user", "content": "Hi"}]),
        ([{"role": "user", "content": "Hi"}], [{"role": "user", "content": "Hi"}]),
    ],
)
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_text_is_a_user_message_after_the_system_message(messages, sent, system):
    stage = Stage(fine())
    stage.play(lambda llm: llm.chat(messages, system=system))
    (body,) = map(json.loads, stage.server.bodies)
    first = [] if system is None else [{"role": "system", "content": system}]
    assert body["messages"] == [*first, *sent]
    assert "system" not in body


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_is_given_once(role):
    said = [{"role": role, "content": "Be long."}, {"role": "user", "content": "Hi"}]
    with pytest.raises(TypeError, match="both system= and a system message"):
        conversation_of(said, "Be brief.")
