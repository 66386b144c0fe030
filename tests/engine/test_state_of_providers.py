"""Requests that name state stored by a provider go only to the key that created it."""

from __future__ import annotations

import json

import pytest

from pytest_ultrapar.errors import BadRequestError, InfraError
from tests.engine.native_play import play
from tests.raw_server import json_response, response

RESPONSES = "https://pool.invalid/v1/responses"
USER = {"role": "user", "content": "Hi"}


class Provider:
    """A server of the Responses API; each key sees only its own responses.

    Attributes:
        asked: The key of each request, and the state that the request named.
        busy: The key that is refused once.
        gone: The key that is no longer known.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.busy = self.gone = ""
        self._owner: dict[str, str] = {}

    async def answer(self, peer, request):
        key, body = request.headers["authorization"].removeprefix("Bearer "), request.json()
        if key == self.gone:
            await peer.send(json_response({"error": {"message": "no such key"}}, status=401))
            return
        if key == self.busy:
            self.busy = ""
            await peer.send(json_response({"error": {}}, b"retry-after-ms: 300", status=429))
            return
        items = [item for item in body["input"] if "encrypted_content" in item]
        names = [body.get("previous_response_id"), *(item["encrypted_content"] for item in items)]
        named = [name for name in names if name]
        self.asked.append((key, " ".join(named)))
        assert [self._owner[name] for name in named] == [key] * len(named)
        number = len(self.asked)
        self._owner |= {f"resp_{number}": key, f"secret {number}": key}
        reasoning = {"type": "reasoning", "summary": [], "encrypted_content": f"secret {number}"}
        text = {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}
        said = {"id": f"resp_{number}", "object": "response", "status": "completed"}
        said["output"] = [reasoning, text]
        if not body.get("stream"):
            await peer.send(json_response(said))
            return
        event = json.dumps({"type": "response.completed", "response": said}).encode()
        await peer.send(response(b"data: " + event + b"\n\n", b"content-type: text/event-stream"))


def on_two_keys(directory, answering, scene, **more):
    play(directory, answering.answer, scene, api="openai-responses", n_keys=2, **more)


async def to_another_key(told, provider) -> str:
    """Move the episode's next request to another key than the last; return the last key."""
    last, _ = provider.asked[-1]
    provider.busy = last
    await told.llm.chat([USER])
    assert provider.asked[-1][0] != last
    return last


@pytest.mark.parametrize("streams", [False, True])
def test_encrypted_reasoning_of_chat_goes_back_to_the_key_that_made_it(tmp_path, streams):
    provider = Provider()

    async def scene(told):
        reply = await told.llm.chat([USER])
        first = await to_another_key(told, provider)
        await told.llm.chat([USER, reply.message, USER])
        assert [one for one in provider.asked if one[1]] == [(first, "secret 1")]

    on_two_keys(tmp_path, provider, scene, provider="stream = true" if streams else "")


@pytest.mark.parametrize("streams", [False, True])
def test_request_that_names_a_response_goes_to_the_key_that_made_it(tmp_path, streams):
    provider = Provider()

    async def scene(told):
        body = {"model": "m", "input": [USER], "stream": streams}
        await told.client.post(RESPONSES, json=body)
        first = await to_another_key(told, provider)
        await told.client.post(RESPONSES, json={**body, "previous_response_id": "resp_1"})
        assert [one for one in provider.asked if one[1]] == [(first, "resp_1")]

    on_two_keys(tmp_path, provider, scene)


def test_case_is_infra_if_the_key_that_made_the_state_is_gone(tmp_path):
    provider = Provider()

    async def scene(told):
        reply = await told.llm.chat([USER])
        await to_another_key(told, provider)
        provider.gone, _ = provider.asked[0]
        with pytest.raises(InfraError) as infra:
            await told.llm.chat([USER, reply.message, USER])
        assert infra.value.kind == "refusal_of_request"
        lane = told.llm.conversation.attempts[0]
        assert f"the request refers to data that is stored only at p/m/{lane.key}" in str(
            infra.value
        )

    on_two_keys(tmp_path, provider, scene)


def test_case_is_infra_if_no_key_has_all_the_named_state(tmp_path):
    provider = Provider()

    async def scene(told):
        reply = await told.llm.chat([USER])
        await to_another_key(told, provider)
        other = await told.llm.chat([USER])
        n_asked = len(provider.asked)
        with pytest.raises(InfraError, match="no lane has all of it"):
            await told.llm.chat([USER, reply.message, USER, other.message])
        assert len(provider.asked) == n_asked

    on_two_keys(tmp_path, provider, scene)


def test_request_that_names_unknown_state_goes_to_any_key(tmp_path):
    async def answer(peer, request):
        assert request.json()["conversation"] == "conv_of_old"
        output = [{"type": "message", "content": []}]
        await peer.send(json_response({"status": "completed", "output": output}))

    async def scene(told):
        for _ in range(2):
            body = {"model": "m", "input": [USER], "conversation": "conv_of_old"}
            assert (await told.client.post(RESPONSES, json=body)).status_code == 200

    play(tmp_path, answer, scene, api="openai-responses")


@pytest.mark.parametrize("name", ["background", "backgr\\u006fund"])
def test_background_mode_is_refused_before_it_is_sent(tmp_path, name):
    async def scene(told):
        body = f'{{"model": "m", "input": "Hi", "{name}": true}}'
        with pytest.raises(BadRequestError, match="background mode, which is not allowed"):
            await told.client.post(RESPONSES, content=body)
        assert told.server.requests == []

    play(tmp_path, Provider().answer, scene, api="openai-responses")


def test_text_about_background_mode_is_sent(tmp_path):
    async def scene(told):
        for said in ('what is {"background": true}?', {"metadata": {"background": True}}):
            body = {"model": "m", "input": [USER, {"role": "user", "content": json.dumps(said)}]}
            assert (await told.client.post(RESPONSES, json=body)).status_code == 200

    play(tmp_path, Provider().answer, scene, api="openai-responses")
