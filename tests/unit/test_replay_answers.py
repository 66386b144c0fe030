"""The answer of a replayed request, from an earlier run's record of its case."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from pytest_ultrapar.apis.registry import api_named
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.engine.conversation import Conversation
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.replay import EpisodeReplay, ReplaySettings, StoredCase
from pytest_ultrapar.errors import InfraError, PromptRefused, ReplayMissError
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.records import Attempt, EpisodeEnded, Exchange

ANSWER = '{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
BODY = b'{"messages":[{"role":"user","content":"a"}]}'


def lane(api="openai", name="i"):
    return Endpoint(
        LaneId(f"p/{name}/k"), "p", name, "k", "http://replay.invalid", "", name, 5.0,
        api_named(api), model="m", base_url="http://replay.invalid", api_word=api,
    )  # fmt: skip


def attempt(outcome="ok", turn=0):
    return Attempt(
        turn=turn, attempt=0, provider="p", instance="then", key="k", t_ready_s=0.0, t_lease_s=0.0,
        t_send_s=1.0, t_end_s=3.5, outcome=outcome, in_flight_at_send=1,
    )  # fmt: skip


class Chat:
    """A request whose body some APIs refuse."""

    tokens, most, pieces = 0, None, None
    messages = ({"role": "user", "content": "a"},)

    def __init__(self, refused_by=(), resource="", body=BODY):
        self._refused_by, self._resource, self._body = refused_by, resource, body

    def on(self, endpoint):
        if endpoint.api_word in self._refused_by:
            raise TypeError(endpoint.api_word)
        read_by = "embeddings" if self._resource else None
        return replace(endpoint, resource=self._resource, read_by=read_by), self._body


def episode(*exchanges, attempts=(), ending="returned", **more):
    return EpisodeEnded(
        case_id="c", worker="main", ending=ending, started_at_us=0, ended_at_us=1, duration_s=1.0,
        exchanges=list(exchanges), attempts=list(attempts), **more,
    )  # fmt: skip


def replay(stored, *lanes, asks=False, missing=""):
    case = StoredCase(stored, lambda _: b"", missing)
    settings = ReplaySettings("run1", asks, lambda _: case, bytes)
    return EpisodeReplay(settings, "c", lanes or (lane(),), role="", now_s=lambda: 7.0, shown=str)


def answer(one, request, conversation):
    return asyncio.run(one.answer(0, request, conversation))


def said(status=200, came=ANSWER, **more):
    return Exchange(0, "openai", "", status, BODY.decode(), came=came, **more)


def test_answer_has_the_lane_and_time_of_the_earlier_run():
    conversation = Conversation()
    found = answer(replay(episode(said(), attempts=[attempt()])), Chat(), conversation)
    assert found is not None
    reply, _, at = found
    assert isinstance(reply, Reply)
    assert (reply.text, reply.lane, reply.latency_s, at) == ("hi", "p/then/k", 2.5, "p/then/k")
    (noted,) = conversation.attempts
    assert (noted.replayed, noted.t_send_s, noted.t_end_s) == ("match", 7.0, 7.0)


def test_request_refused_by_one_lane_is_replayed_by_another():
    stored = episode(said(), attempts=[attempt()])
    lanes = (lane("anthropic"), lane("openai"))
    assert answer(replay(stored, *lanes), Chat({"anthropic"}), Conversation()) is not None
    with pytest.raises(TypeError, match="anthropic"):
        answer(replay(stored, *lanes), Chat({"anthropic", "openai"}), Conversation())


def test_request_that_was_never_sent_fails_as_before():
    stored = episode(ending="infra", kind="no_lane", detail="all lanes are out")
    with pytest.raises(InfraError, match="all lanes are out") as caught:
        answer(replay(stored), Chat(), Conversation())
    assert caught.value.kind == "no_lane"
    unsent = Exchange(0, "", "", None, BODY.decode())
    stored = episode(unsent, ending="infra", kind="budget", detail="no money")
    with pytest.raises(InfraError, match="no money"):
        answer(replay(stored), Chat(), Conversation())
    assert answer(replay(stored, asks=True), Chat(), Conversation()) is None


@pytest.mark.parametrize("outcome", ["timeout", "transport", "server"])
def test_request_without_an_earlier_answer_fails_as_before(outcome):
    stored = episode(said(None, ""), attempts=[attempt(outcome)], ending="infra", kind=outcome)
    with pytest.raises(InfraError) as caught:
        answer(replay(stored), Chat(), Conversation())
    assert caught.value.kind == outcome
    assert answer(replay(stored, asks=True), Chat(), Conversation()) is None


def test_stream_that_ended_in_a_refusal_is_refused_again_without_a_stored_body():
    stored = episode(
        said(200, ""), attempts=[attempt("refused")], ending="refused", kind="content_filter"
    )
    with pytest.raises(PromptRefused) as caught:
        answer(replay(stored), Chat(), Conversation())
    assert caught.value.kind == "content_filter"


def test_replay_miss_says_why():
    with pytest.raises(ReplayMissError, match="run1 has no answer to this request: no such case"):
        answer(replay(None, missing="no such case"), Chat(), Conversation())
    damaged = episode(Exchange(0, "openai", "", 200, "", base=3), attempts=[attempt()])
    with pytest.raises(ReplayMissError, match="the case's stored requests cannot be read"):
        answer(replay(damaged), Chat(), Conversation())


def test_masked_secret_in_a_request_still_matches():
    masked = msgspec.structs.replace(said(), sent='{"messages":["***"]}')
    case = StoredCase(episode(masked, attempts=[attempt()]), lambda _: b"")
    settings = ReplaySettings(
        "run1", False, lambda _: case, lambda body: body.replace(b"sk-1", b"***")
    )
    one = EpisodeReplay(settings, "c", (lane(),), role="", now_s=lambda: 0.0, shown=str)
    assert answer(one, Chat(body=b'{"messages":["sk-1"]}'), Conversation()) is not None


def test_cancelled_request_is_cancelled_again_or_else_fails(monkeypatch):
    # The episode cancelled the request after 2.5 s.
    stored = episode(said(None, ""), attempts=[attempt("cancelled")])
    conversation = Conversation()

    async def leaves():
        async with asyncio.timeout(0.01):
            await replay(stored).answer(0, Chat(), conversation)

    with pytest.raises(TimeoutError):
        asyncio.run(leaves())
    assert conversation.failure is None
    monkeypatch.setattr("pytest_ultrapar.engine.replay.LEAVES_LATE_S", -2.5)
    with pytest.raises(InfraError, match="cancelled"):
        answer(replay(stored), Chat(), conversation)
