"""Requests and answers of OpenAI and Azure OpenAI, in their documented shapes, from end to end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import httpx
import pytest

from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.broker.lease_use import acquire_lease
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.engine.endpoints import endpoints
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.engine.llm import Llm
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.sender import EngineParts, Sender
from pytest_ultrapar.errors import BadRequestError, InfraError, PromptRefused
from pytest_ultrapar.pool.config import Overrides, load_pool
from pytest_ultrapar.system.clock import MonotonicClock
from tests.engine import recorded_shapes as shapes
from tests.raw_server import RawServer, Request, response
from tests.unit.pool_texts import real

MESSAGES = [{"role": "user", "content": "Hi"}]
PATHS = {
    "openai": "/v1/chat/completions",
    "azure-openai": "/openai/deployments/m/chat/completions",
}
SSE = {"content-type": "text/event-stream; charset=utf-8"}
APIS = ("openai", "azure-openai")


class Talk:
    """One `llm.chat` against a mocked provider, and all that is known of it afterwards."""

    def __init__(self, directory, api: str, fields: str = "", max_attempts: int = 1) -> None:
        azure = api == "azure-openai"
        url = "https://res.openai.azure.com" if azure else "https://api.example.com/v1"
        version = 'api_version = "2024-10-21"\n' if azure else ""
        text = real(version + fields, api=api, url=f'base_url = "{url}"')
        path = directory / "pool.toml"
        path.write_text(text, encoding="utf-8")
        self.pool = load_pool(path, environ={}, overrides=Overrides())
        self.path = PATHS[api]
        self.max_attempts = max_attempts
        self.told = []
        self.requests: list[Request] = []
        self.attempts = []

    def chat(self, answer: httpx.Response, messages=MESSAGES, **parameters):
        return asyncio.run(self._chat(answer, messages, parameters))

    async def _chat(self, answer, messages, parameters):
        own = {name: value for name, value in answer.headers.items() if name != "content-length"}
        headers = (f"{name}: {value}".encode() for name, value in own.items())
        told = response(answer.content, *headers, status=b"%d Said" % answer.status_code)

        async def say(peer, request):
            assert request.path == self.path
            await peer.send(told)

        with RawServer(say) as server:
            return await self._ask(server, messages, parameters)

    async def _ask(self, server, messages, parameters):
        base = server.base_url if self.path.startswith("/v1") else server.url
        urls = {provider.name: base for provider in self.pool.providers}
        found = endpoints(self.pool, token_of=lambda *_: "sk-secret", base_url_of=urls)
        reading = {lane: replace(each, reads_allowance=True) for lane, each in found.items()}
        clock = MonotonicClock()
        broker = LocalBroker(BrokerSettings(self.pool), clock, asyncio.get_running_loop())
        release = broker.release
        broker.release = lambda lease, outcome, told: (
            self.told.append(told),
            release(lease, outcome, told),
        )
        http = HttpClient(found.values(), max_connections=2)
        parts = EngineParts(
            port=broker,
            exchange=http,
            endpoints=reading,
            retry=RetryPolicy(self.max_attempts),
            clock=clock,
            next_request_id=iter(range(2, 100)).__next__,
            shown=str,
            masked=bytes,
        )
        first = await acquire_lease(broker, LeaseRequest(1, "m", opens=True, case_id="c1"))
        llm = Llm(Sender(parts, model="m", group="", case_id="c1", seed=1, first=first))
        try:
            return await llm.chat(messages, **parameters)
        finally:
            await llm.close()
            await http.close()
            self.requests = list(server.requests)
            self.attempts = llm.conversation.attempts


def whole(api: str, message: dict[str, object], finish: str = "stop") -> httpx.Response:
    if api == "azure-openai":
        body = shapes.azure_completion(message, finish=finish)
        return httpx.Response(200, headers=shapes.AZURE_HEADERS, json=body)
    body = shapes.completion(message, finish=finish)
    return httpx.Response(200, headers=shapes.OPENAI_HEADERS, json=body)


def streamed(api: str, *deltas: dict[str, object], finish: str = "stop") -> httpx.Response:
    azure = api == "azure-openai"
    headers = (shapes.AZURE_HEADERS if azure else shapes.OPENAI_HEADERS) | SSE
    content = shapes.stream(*deltas, finish=finish, azure=azure)
    return httpx.Response(200, headers=headers, content=content)


@pytest.mark.parametrize("api", APIS)
def test_request_is_what_the_api_documents(tmp_path, api):
    talk = Talk(tmp_path, api)
    talk.chat(whole(api, {"content": "Hello"}), temperature=0.5)
    (request,) = talk.requests
    body = request.json()
    assert body.pop("messages") == MESSAGES
    if api == "azure-openai":
        assert request.query["api-version"] == "2024-10-21"
        assert request.headers["api-key"] == "sk-secret"
        assert "authorization" not in request.headers
        assert body == {"temperature": 0.5}
    else:
        assert not request.query
        assert request.headers["authorization"] == "Bearer sk-secret"
        assert "api-key" not in request.headers
        assert body == {"model": "m", "temperature": 0.5}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", [False, True])
def test_text_usage_and_limits(tmp_path, api, streams):
    talk = Talk(tmp_path, api, "stream = true" if streams else "")
    answer = (
        streamed(api, {"content": "Hel"}, {"content": "lo"})
        if streams
        else whole(api, {"content": "Hello"})
    )
    reply = talk.chat(answer)
    assert (reply.text, reply.finish_reason) == ("Hello", "stop")
    assert (reply.tokens_in, reply.tokens_out, reply.reasoning_tokens) == (19, 10, 4)
    (attempt,) = talk.attempts
    assert (attempt.outcome, attempt.status, attempt.tokens_out) == ("ok", 200, 10)
    if streams:
        assert attempt.t_send_s < attempt.t_first_byte_s <= attempt.t_first_token_s
        assert attempt.t_first_token_s <= attempt.t_end_s
    else:
        assert attempt.t_first_token_s is None
    (told,) = talk.told
    assert told.tokens == 29
    assert told.allowance == (
        Allowance(requests_left=79, tokens_left=61353)
        if api == "azure-openai"
        else Allowance(5000, 4999, 0.012, 160000, 159976, 0.008)
    )
    asked = talk.requests[0].json()
    assert asked.get("stream_options") == ({"include_usage": True} if streams else None)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", [False, True])
def test_tool_calls_and_their_results(tmp_path, api, streams):
    talk = Talk(tmp_path, api, "stream = true" if streams else "")
    function = shapes.TOOL_CALL["function"]
    begin = {**shapes.TOOL_CALL, "function": {"name": function["name"], "arguments": ""}}
    deltas = [{"tool_calls": [{"index": 0, **begin}]}] + [
        {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        for piece in ('{\n"location":', ' "Boston"\n}')
    ]
    message = {"tool_calls": [shapes.TOOL_CALL]}
    conversation = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [shapes.TOOL_CALL]},
        {"role": "tool", "tool_call_id": "call_abc123", "content": "Rain"},
    ]
    reply = talk.chat(
        streamed(api, *deltas, finish="tool_calls")
        if streams
        else whole(api, message, "tool_calls"),
        conversation,
        tools=[{"type": "function", "function": {"name": "get_weather"}}],
    )
    assert reply.text == ""
    assert reply.tool_calls == (
        ToolCall("call_abc123", "get_weather", '{\n"location": "Boston"\n}'),
    )
    body = talk.requests[0].json()
    assert body["messages"] == conversation
    assert body["tools"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize("streams", [False, True])
def test_reasoning_and_refusal(tmp_path, streams):
    talk = Talk(tmp_path, "openai", "stream = true" if streams else "")
    message = {"reasoning_content": "Hm.", "refusal": "I cannot help with that."}
    reply = talk.chat(streamed("openai", message) if streams else whole("openai", message))
    assert (reply.reasoning, reply.refusal) == ("Hm.", "I cannot help with that.")
    assert reply.text == "I cannot help with that."


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", [False, True])
def test_filtered_answer_is_a_result_of_the_case(tmp_path, api, streams):
    talk = Talk(tmp_path, api, "stream = true" if streams else "")
    message = {"content": "Some"}
    answer = (
        streamed(api, message, finish="content_filter")
        if streams
        else whole(api, message, "content_filter")
    )
    with pytest.raises(PromptRefused) as refusal:
        talk.chat(answer)
    assert refusal.value.kind == "content_filter"


def error(status: int, body: dict[str, object], **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=shapes.OPENAI_HEADERS | headers, json=body)


ERRORS = {
    "wrong key": (
        "openai",
        error(
            401,
            shapes.openai_error(
                "Incorrect API key provided.", "invalid_request_error", "invalid_api_key"
            ),
        ),
        "auth",
    ),
    "too fast": (
        "openai",
        error(
            429,
            shapes.openai_error("Rate limit reached for m", "requests", "rate_limit_exceeded"),
            **{"retry-after": "3"},
        ),
        "rate",
    ),
    "no money": (
        "openai",
        error(
            429,
            shapes.openai_error(
                "You exceeded your current quota", "insufficient_quota", "insufficient_quota"
            ),
        ),
        "quota",
    ),
    "server": (
        "openai",
        error(500, shapes.openai_error("The server had an error", "server_error", None)),
        "overload",
    ),
    "azure wrong key": ("azure-openai", error(401, shapes.AZURE_NO_ACCESS), "auth"),
    "azure no deployment": ("azure-openai", error(404, shapes.AZURE_NO_DEPLOYMENT), "not_found"),
    "azure too fast": (
        "azure-openai",
        error(429, shapes.AZURE_TOO_FAST, **{"retry-after": "7", "retry-after-ms": "6500"}),
        "rate",
    ),
}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", ERRORS)
def test_error_is_classed_by_what_it_means(tmp_path, name, streams):
    api, answer, outcome = ERRORS[name]
    talk = Talk(tmp_path, api, "stream = true" if streams else "")
    with pytest.raises(InfraError) as infra:
        talk.chat(answer)
    assert infra.value.kind == outcome
    (attempt,) = talk.attempts
    assert (attempt.outcome, attempt.status) == (outcome, answer.status_code)
    if outcome == "rate":
        assert talk.told[0].retry_after_s == (6.5 if api == "azure-openai" else 3.0)
    # A refusal's headers count as an answer's do.
    assert talk.told[0].allowance.requests_left == 4999


@pytest.mark.parametrize(
    ("api", "body", "raised", "kind"),
    [
        ("azure-openai", shapes.AZURE_FILTERED, PromptRefused, "content_filter"),
        (
            "openai",
            shapes.openai_error(
                "This model's maximum context length is 8192 tokens.",
                "invalid_request_error",
                "context_length_exceeded",
            ),
            PromptRefused,
            "context_length",
        ),
        (
            "openai",
            shapes.openai_error(
                "Unsupported parameter: 'max_tokens' is not supported with this model.",
                "invalid_request_error",
                "unsupported_parameter",
            ),
            BadRequestError,
            None,
        ),
    ],
)
def test_refused_request_is_not_sent_again(tmp_path, api, body, raised, kind):
    talk = Talk(tmp_path, api, max_attempts=3)
    with pytest.raises(raised) as refusal:
        talk.chat(error(400, body))
    assert len(talk.requests) == 1
    assert kind is None or refusal.value.kind == kind


@pytest.mark.parametrize("api", APIS)
def test_error_in_a_stream_has_its_class_and_may_be_billed(tmp_path, api):
    talk = Talk(tmp_path, api, "stream = true")
    content = shapes.stream({"content": "Hel"}).split(b'"finish_reason": "stop"')[0]
    begin = content[: content.rindex(b"\n\n") + 2]
    late = json.dumps(shapes.openai_error("The server had an error", "server_error", None))
    with pytest.raises(InfraError) as infra:
        talk.chat(httpx.Response(200, headers=SSE, content=begin + f"data: {late}\n\n".encode()))
    assert infra.value.kind == "overload"
    (attempt,) = talk.attempts
    assert (attempt.status, attempt.maybe_billed) == (200, True)
    assert attempt.t_first_token_s is not None


def test_server_that_does_not_stream_is_read_whole(tmp_path):
    talk = Talk(tmp_path, "openai", "stream = true")
    assert talk.chat(whole("openai", {"content": "Hello"})).text == "Hello"
    assert talk.attempts[0].t_first_token_s is None
