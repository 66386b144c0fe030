"""Requests and answers of OpenAI and Azure OpenAI, in their documented shapes, from end to end.

`tests/unit` tests the meaning of each part of an answer.
"""

from __future__ import annotations

import json

import pytest

from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.errors import InfraError, PromptRefused
from tests.engine import native_play
from tests.engine import recorded_shapes as shapes
from tests.engine.native_play import TOKEN
from tests.engine.test_native_requests import saying
from tests.raw_server import json_response, response

MESSAGES = [{"role": "user", "content": "Hi"}]
AZURE = "azure-openai"
APIS = ("openai", AZURE)
SSE = b"content-type: text/event-stream; charset=utf-8"


def play(tmp_path, api, answer, scene, *, streams=False):
    """Play a scene in adaptive mode against a server of that API."""
    version = 'api_version = "2024-10-21"\n' if api == AZURE else ""
    fields = f'rate_mode = "adaptive"\nstream = {str(streams).lower()}\n{version}'
    path = "" if api == AZURE else "/v1"
    native_play.play(
        tmp_path, saying(answer), scene, provider=fields, api=api, path=path, max_attempts=1
    )


def answer_of(api, text, *, streams=False):
    """`text` in two pieces or whole, as the API sends it."""
    headers = shapes.headers(api == AZURE)
    if streams:
        deltas = ({"content": text[:3]}, {"content": text[3:]})
        return response(shapes.stream(*deltas, azure=api == AZURE), SSE, *headers)
    return json_response(shapes.completion({"content": text}, azure=api == AZURE), *headers)


@pytest.mark.parametrize("api", APIS)
def test_request_has_the_documented_form(tmp_path, api):
    async def scene(told):
        await told.llm.chat(MESSAGES, temperature=0.5)
        (request,) = told.server.requests
        assert request.headers["accept-encoding"] == "gzip, deflate"
        body = request.json()
        assert body.pop("messages") == MESSAGES
        if api == AZURE:
            assert request.target == (
                "/openai/deployments/m/chat/completions?api-version=2024-10-21"
            )
            assert request.headers["api-key"] == TOKEN
            assert "authorization" not in request.headers
            assert body == {"temperature": 0.5}
        else:
            assert request.target == "/v1/chat/completions"
            assert request.headers["authorization"] == f"Bearer {TOKEN}"
            assert "api-key" not in request.headers
            assert body == {"model": "m", "temperature": 0.5}

    play(tmp_path, api, answer_of(api, "Hello"), scene)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", [False, True])
def test_text_usage_and_limits_are_read(tmp_path, api, streams):
    async def scene(told):
        reply = await told.llm.chat(MESSAGES)
        assert (reply.text, reply.finish_reason) == ("Hello", "stop")
        assert (reply.tokens_in, reply.tokens_out, reply.reasoning_tokens) == (19, 10, 4)
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.outcome, attempt.status, attempt.tokens_out) == ("ok", 200, 10)
        if streams:
            assert attempt.t_send_s < attempt.t_first_byte_s <= attempt.t_first_token_s
            assert attempt.t_first_token_s <= attempt.t_end_s
        else:
            assert attempt.t_first_token_s is None
        (feedback,) = told.feedback
        assert feedback.tokens == 29
        assert feedback.allowance == (None if api == AZURE else Allowance(5000, 160000))
        (request,) = told.server.requests
        options = request.json().get("stream_options")
        assert options == ({"include_usage": True} if streams else None)
        assert (request.headers["accept-encoding"] == "identity") == streams

    play(tmp_path, api, answer_of(api, "Hello", streams=streams), scene, streams=streams)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "raised", "kind"),
    [
        # One of the refusals is about the request.
        (401, shapes.WRONG_KEY, InfraError, "refusal_of_request"),
        (429, shapes.TOO_FAST, InfraError, "rate"),
        (500, shapes.BROKEN, InfraError, "overload"),
        (400, shapes.TOO_LONG, PromptRefused, "context_length"),
    ],
)
def test_error_gets_the_class_of_its_meaning(tmp_path, streams, status, error, raised, kind):  # noqa: PLR0917
    told_s = b"retry-after: 3"

    async def scene(told):
        with pytest.raises(raised) as refusal:
            await told.llm.chat(MESSAGES)
        assert refusal.value.kind == kind
        (attempt,) = told.llm.conversation.attempts
        assert attempt.status == status
        if kind == "rate":
            assert attempt.retry_after_s == 3
        # Headers of a refusal count like headers of an answer.
        assert told.feedback[0].allowance.requests == 5000

    answer = json_response(error, *shapes.headers(), told_s, status=status)
    play(tmp_path, "openai", answer, scene, streams=streams)


@pytest.mark.parametrize("api", APIS)
def test_error_in_a_stream_has_its_class_and_may_be_billed(tmp_path, api):
    content = shapes.stream({"content": "Hel"}).split(b'"finish_reason": "stop"')[0]
    begin = content[: content.rindex(b"\n\n") + 2]
    late = begin + b"data: %b\n\n" % json.dumps(shapes.TOO_LONG).encode()

    async def scene(told):
        with pytest.raises(PromptRefused):
            await told.llm.chat(MESSAGES)
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.status, attempt.maybe_billed) == (200, True)
        assert attempt.t_first_token_s is not None

    play(tmp_path, api, response(late, SSE), scene, streams=True)


def test_server_that_does_not_stream_is_read_whole(tmp_path):
    async def scene(told):
        assert (await told.llm.chat(MESSAGES)).text == "Hello"
        assert told.llm.conversation.attempts[0].t_first_token_s is None

    play(tmp_path, "openai", answer_of("openai", "Hello"), scene, streams=True)
