"""Requests of SDKs: the form in which they are sent, refusals, and answers."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
import types
from urllib.parse import quote

import pytest

from pytest_ultrapar.engine import sdk_request
from pytest_ultrapar.errors import BadRequestError, ConfigError, InfraError, PromptRefused
from tests.engine.native_play import CHAT, EVENT_STREAM, LAST, TOKEN, event, play
from tests.raw_server import json_response, response

HOME = "https://pool.invalid"
EMBEDDINGS = {"data": [{"index": 0, "embedding": [0.5, 1e-3]}], "usage": {"prompt_tokens": 7}}
COMPLETION = {
    "choices": [{"text": "more", "index": 0, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}
CHATTED = {
    "id": "c-1",
    "choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 6},
    "of_the_provider": [1, 2],
}


def saying(*answers: bytes):
    given = iter(answers)

    async def answer(peer, _):
        await peer.send(next(given))

    return answer


def test_request_is_sent_with_the_lanes_key_and_model_name(tmp_path):
    async def scene(told):
        headers = {
            "authorization": "Bearer pool",
            "openai-organization": "org-mine",
            "x-stainless-lang": "python",
            "openai-beta": "some=1",
        }
        answer = await told.client.post(
            f"{CHAT}?deep=1", json=told.body(logprobs=True), headers=headers
        )
        assert answer.json() == CHATTED
        (request,) = told.server.requests
        assert request.target == "/v1/chat/completions?deep=1"
        assert request.json() == {**told.body(logprobs=True), "model": "theirs"}
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        assert request.headers["openai-beta"] == "some=1"
        assert not {"openai-organization", "x-stainless-lang"} & request.headers.keys()
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.outcome, attempt.tokens_in, attempt.tokens_out) == ("ok", 5, 6)
        said = [(one.role, one.content) for one in told.llm.conversation.messages]
        assert said == [("user", "Hi"), ("assistant", "fine")]

    play(tmp_path, saying(json_response(CHATTED)), scene, model='instances = ["theirs"]')


@pytest.mark.parametrize(
    ("path", "answer", "tokens"),
    [("/embeddings", EMBEDDINGS, (7, 0)), ("/completions", COMPLETION, (3, 4))],
)
def test_other_resources_are_served_and_counted(tmp_path, path, answer, tokens):
    async def scene(told):
        url = f"https://api.openai.com/v1{path}"
        given = await told.client.post(url, json={"model": "m", "input": ["a"], "prompt": "a"})
        assert given.json() == answer
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.tokens_in, attempt.tokens_out) == tokens

    play(tmp_path, saying(json_response(answer)), scene)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        (f"{HOME}/openai/deployments/m/chat/completions?api-version=mine", "chat/completions"),
        (f"{HOME}/v1/chat/completions", "chat/completions"),
        (f"{HOME}/v1/embeddings", "embeddings"),
    ],
)
def test_request_has_the_lanes_deployment_and_version(tmp_path, url, target):
    async def scene(told):
        await told.client.post(url, json=told.body(input="a"), headers={"api-key": "pool"})
        (request,) = told.server.requests
        assert request.target == f"/openai/deployments/theirs/{target}?api-version=2024-10-21"
        assert request.headers["api-key"] == TOKEN

    answer = EMBEDDINGS if target == "embeddings" else CHATTED
    play(
        tmp_path,
        saying(json_response(answer)),
        scene,
        api="azure-openai",
        provider='api_version = "2024-10-21"',
        model='instances = ["theirs"]',
        path="",
    )


@pytest.mark.parametrize(
    ("url", "headers", "fields", "sentence"),
    [
        ("https://other.example/v1/chat/completions", {}, {}, "other.example"),
        ("http://127.0.0.1:9/v1/chat/completions", {}, {}, "127.0.0.1"),
        (CHAT, {"authorization": "Bearer sk-own-canary"}, {}, "its own key"),
        (CHAT, {"x-api-key": "sk-own-canary"}, {}, "its own key"),
        (f"{CHAT}?key=sk-own-canary", {}, {}, "its own key"),
        (f"{HOME}/v1/files", {}, {}, "/v1/files"),
        (f"{HOME}/v1/messages", {}, {}, "/chat/completions"),
        (CHAT, {}, {"model": "another"}, "'another'"),
        (CHAT, {}, {"model": 3}, "model 3"),
    ],
)
def test_a_forbidden_request_is_refused_with_one_sentence(tmp_path, url, headers, fields, sentence):
    async def scene(told):
        with pytest.raises(BadRequestError) as refused:
            await told.client.post(url, json=told.body(**fields), headers=headers)
        said = str(refused.value)
        assert sentence in said
        assert "canary" not in said
        assert "key0" not in said
        assert "\n" not in said
        assert told.llm.conversation.failure is refused.value
        with pytest.raises(BadRequestError):
            await told.ask()
        assert told.server.requests == []

    play(tmp_path, saying(), scene)


@pytest.mark.parametrize("content", [b"", b"no json", b"[1]", b"{", b'{"model": "m"} {}'])
def test_body_that_is_not_an_object_is_refused(tmp_path, content):
    async def scene(told):
        with pytest.raises(BadRequestError, match="JSON"):
            await told.client.post(CHAT, content=content)
        assert told.server.requests == []

    play(tmp_path, saying(), scene)


def test_huge_body_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sdk_request, "LARGEST_REQUEST_BYTES", 1000)

    async def scene(told):
        with pytest.raises(BadRequestError, match="is larger than the maximum of 1,000 bytes"):
            await told.ask(user="x" * 1000)
        assert told.server.requests == []

    play(tmp_path, saying(), scene)


def test_get_is_refused(tmp_path):
    async def scene(told):
        with pytest.raises(BadRequestError, match="GET /v1/models"):
            await told.client.get(f"{HOME}/v1/models")

    play(tmp_path, saying(), scene)


@pytest.mark.parametrize(
    ("status", "error", "fault"),
    [
        (400, {"message": "no such field"}, BadRequestError),
        (422, {"message": "no such field"}, BadRequestError),
        (400, {"message": "too long", "code": "context_length_exceeded"}, PromptRefused),
        (400, {"message": "filtered", "code": "content_filter"}, PromptRefused),
    ],
)
def test_provider_error_about_the_request_is_passed_on_unchanged(tmp_path, status, error, fault):
    said = {"error": {**error, "param": TOKEN}}

    async def scene(told):
        answer = await told.ask()
        assert answer.status_code == status
        assert answer.json()["error"]["message"] == error["message"]
        assert TOKEN not in answer.text
        assert answer.headers["x-should-retry"] == "false"
        assert isinstance(answer.extensions["ultrapar.fault"].fault, fault)
        # The agent may be able to correct its request.
        assert told.llm.conversation.failure is None
        assert (await told.ask()).status_code == 200

    # This is the lane's first answer, so a check shows whether all requests get it.
    check = [json_response(CHATTED)] * (fault is BadRequestError)
    answers = [json_response(said, status=status), *check, json_response(CHATTED)]
    play(tmp_path, saying(*answers), scene)


def test_resource_that_a_server_lacks_costs_no_lane(tmp_path):
    """vLLM has no `/embeddings` for a chat model; its lane stays in use."""
    lacking = json_response({"detail": "Not Found"}, status=404)

    async def scene(told):
        answer = await told.client.post(f"{HOME}/v1/embeddings", json={"model": "m", "input": "a"})
        assert answer.status_code == 404
        assert (await told.ask()).status_code == 200

    play(tmp_path, saying(lacking, *[json_response(CHATTED)] * 2), scene)


def test_final_failure_ends_all_further_requests(tmp_path):
    refused = json_response({"error": {"message": f"wrong key {TOKEN}"}}, status=401)

    async def scene(told):
        with pytest.raises(InfraError):
            await told.ask()
        with pytest.raises(InfraError):
            await told.ask()
        with pytest.raises(InfraError):
            await told.llm.chat([{"role": "user", "content": "Hi"}])
        # And a probe, since this is the first answer of the lane.
        assert len(told.server.requests) == 2

    play(tmp_path, saying(refused, refused), scene)


def test_retries_of_an_sdk_are_reported_once(tmp_path, caplog):
    async def scene(told):
        for _ in range(2):
            headers = {"x-stainless-retry-count": "2"}
            await told.client.post(CHAT, json=told.body(), headers=headers)

    with caplog.at_level(logging.WARNING):
        play(tmp_path, saying(json_response(CHATTED), json_response(CHATTED)), scene)
    (line,) = caplog.messages
    assert "max_retries=0" in line


def test_client_works_only_in_its_own_loop_and_episode(tmp_path):
    async def scene(told):
        async def asks() -> None:
            with pytest.raises(RuntimeError, match="event loop"):
                await told.ask()

        await asyncio.to_thread(asyncio.run, asks())
        await told.llm.close()
        with pytest.raises(RuntimeError, match="had ended"):
            await told.ask()
        assert told.server.requests == []

    play(tmp_path, saying(), scene)


def test_client_of_another_api_is_refused(tmp_path):
    async def scene(told):
        with pytest.raises(
            BadRequestError, match=r"llm.anthropic\(\) does not work with the lane p/m/"
        ):
            told.llm.anthropic()

    play(tmp_path, saying(), scene)


def test_error_names_the_missing_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)

    async def scene(told):
        with pytest.raises(ConfigError, match="pip install openai"):
            told.llm.openai()
        with pytest.raises(TypeError, match="httpx or httpx2"):
            told.llm.httpx_client(json)

    play(tmp_path, saying(), scene)


def test_request_with_too_many_objects_is_refused(tmp_path):
    async def scene(told):
        content = b'{"model": "m", "input": [' + b"{}," * 100_000 + b"{}]}"
        with pytest.raises(BadRequestError, match="has more than 10000 objects"):
            await told.client.post(CHAT, content=content)
        assert told.server.requests == []

    play(tmp_path, saying(), scene)


def spelled(token: str) -> list[str]:
    """The forms in which servers may echo a key: whole, cut, encoded."""
    basic = base64.b64encode(f"user:{token}".encode()).decode()
    return [token, token[:14] + "...", quote(token + "/"), token.encode().hex(), basic]


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request", b"418 Teapot"])
def test_key_that_a_server_echoes_is_masked(tmp_path, status):
    """The key of another lane, too: a client must not learn which key was used."""
    keys = [TOKEN, f"{TOKEN}-key1"]
    said = [one for key in keys for one in spelled(key)]
    body = json.dumps({**CHATTED, "error": None, "echo": said}).encode()
    headers = b"x-echo: " + TOKEN.encode() + b"\r\nx-other: Bearer " + said[5].encode()

    async def scene(told):
        answer = await told.ask()
        assert answer.status_code == int(status[:3])
        given = answer.text + str(dict(answer.headers))
        assert "***" in answer.text
        assert "***" in answer.headers["x-echo"]
        assert [one for one in said if one in given] == []
        assert answer.json()["id"] == "c-1"

    play(tmp_path, saying(response(body, headers, status=status)), scene, n_keys=2)


def test_key_in_a_stream_is_masked(tmp_path):
    pieces = (EVENT_STREAM, event(f"my key is {TOKEN}"), LAST)

    async def scene(told):
        async with told.stream() as answer:
            text = b"".join([piece async for piece in answer.aiter_raw()])
        assert TOKEN.encode() not in text
        assert b"my key is ***" in text
        assert told.outcomes == ["ok"]

    play(tmp_path, saying(b"".join(pieces)), scene)


def test_tokens_are_reserved_for_the_maximum_in_the_body(tmp_path):
    asked = []

    async def scene(told):
        estimate = told.tokens.of_request
        told.tokens.of_request = lambda *given: asked.append(estimate(*given)) or asked[-1]
        await told.ask(max_tokens=100)
        await told.client.post(
            f"{HOME}/v1/embeddings", json={"model": "m", "input": ["word " * 30] * 10}
        )

    play(
        tmp_path,
        saying(json_response(CHATTED), json_response(EMBEDDINGS)),
        scene,
        provider="tpm = 100000",
    )
    chat, embeddings = asked
    assert 100 < chat < 200
    assert 400 < embeddings < 1000


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_sdk_gets_a_client_of_its_own_http_library(tmp_path, monkeypatch, library):
    module = pytest.importorskip(library)
    sdk = types.ModuleType("openai")
    sdk.DefaultAsyncHttpxClient = type("Default", (module.AsyncClient,), {})
    sdk.AsyncOpenAI = lambda **given: given["http_client"]
    monkeypatch.setitem(sys.modules, "openai", sdk)

    async def scene(told):
        client = told.llm.openai()
        assert isinstance(client, module.AsyncClient)
        assert (await client.post(CHAT, json=told.body())).json() == CHATTED

    play(tmp_path, saying(json_response(CHATTED)), scene)


RESPONSES = "https://pool.invalid/v1/responses"
SAID = {
    "id": "r-1",
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "fine"}]}],
    "usage": {"input_tokens": 5, "output_tokens": 6},
}
STREAMED = b"".join(
    b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **more}).encode())
    for kind, more in {
        "response.created": {"response": {"status": "in_progress", "output": []}},
        "response.output_text.delta": {"delta": "fine"},
        "response.completed": {"response": SAID},
    }.items()
)


@pytest.mark.parametrize("header", [b"content-type: text/event-stream", b"x-none: 1"])
def test_unrequested_stream_of_responses_is_read(tmp_path, header):
    async def scene(told):
        said = {"model": "m", "input": "Hi"}
        answer = await told.client.post(RESPONSES, json=said)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == SAID
        reply = await told.llm.chat([{"role": "user", "content": "Hi"}])
        assert (reply.text, reply.tokens_in, reply.tokens_out) == ("fine", 5, 6)
        assert told.outcomes == ["ok", "ok"]

    came = response(STREAMED, header)
    play(tmp_path, saying(came, came), scene, api="openai-responses")


def test_unrequested_stream_of_chat_becomes_one_body(tmp_path):
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    came = event("fi") + event("ne") + event(delta={"tool_calls": [call]}) + LAST

    async def scene(told):
        (choice,) = (await told.ask()).json()["choices"]
        assert choice["message"]["content"] == "fine"
        (called,) = choice["message"]["tool_calls"]
        assert (called["id"], called["type"], called["function"]["name"]) == ("a", "function", "f")

    play(tmp_path, saying(response(came)), scene)


CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [
        {"type": "text", "text": "fine"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
    ],
    "stop_reason": "stop_sequence",
    "stop_sequence": "END",
    "usage": {"input_tokens": 9, "output_tokens": 2},
}
BLOCKS = [
    {"type": "message_start", "message": CLAUDE | {"content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"text": "fine"}},
    {"type": "content_block_start", "index": 1, "content_block": CLAUDE["content"][1]},
    {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"x": 1}'}},
    {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}},
    {"type": "message_stop"},
]


def content(text: str, **more: object) -> dict[str, object]:
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **more}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
    return {"candidates": [candidate], "usageMetadata": usage, "responseId": "r-1"}


def written(text: str, **more: object) -> dict[str, object]:
    return {"id": "c-1", "object": "text_completion", "choices": [{"text": text, **more}]}


TOLD = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
UNASKED = {
    "anthropic": ("v1/messages", {"messages": []}, BLOCKS, CLAUDE),
    "gemini": (
        "v1beta/models/m:generateContent",
        {"contents": []},
        [content("fi"), content("ne", finishReason="STOP")],
        content("fine", finishReason="STOP"),
    ),
    "openai": (
        "v1/completions",
        {"prompt": "say"},
        [written("fi"), written("ne", finish_reason="stop"), {"choices": [], "usage": TOLD}],
        {
            **written("fine", index=0, finish_reason="stop", logprobs=None),
            "created": 0,
            "model": None,
        },
    ),
}


@pytest.mark.parametrize("header", [b"content-type: text/event-stream", b"x-none: 1"])
@pytest.mark.parametrize("api", UNASKED)
def test_unrequested_stream_becomes_a_body_of_its_api(tmp_path, api, header):
    path, asked, events, body = UNASKED[api]

    async def scene(told):
        answer = await told.client.post(f"{HOME}/{path}", json={"model": "m", **asked})
        assert answer.headers["content-type"] == "application/json"
        given = answer.json()
        usage = given.pop("usage", {})
        assert given == {name: one for name, one in body.items() if name != "usage"}
        assert {name: one for name, one in usage.items() if one is not None} == (
            {"anthropic": CLAUDE["usage"], "openai": TOLD}.get(api, {})
        )
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.tokens_in, attempt.tokens_out) == (9, 2)

    came = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in events)
    base = "" if api != "openai" else "/v1"
    play(tmp_path, saying(response(came, header)), scene, api=api, path=base)
