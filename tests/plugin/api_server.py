"""A foreign server that speaks as OpenAI, Azure OpenAI and vLLM do, and writes down what it got.

Made with aiohttp.web, another stack than the simulator's. The path says which API is meant:

    /v1/chat/completions                                          OpenAI, `authorization: Bearer`
    /openai/deployments/NAME/chat/completions?api-version=...     Azure, `api-key`
    /vllm/v1/chat/completions, /metrics                           vLLM, no key

and the last message's content what to answer:

    say WORDS      these words, one per piece of a stream
    think WORDS    these words after some reasoning
    call NAME      a call of that tool; once its result is there: the result
    raw            ANSI sequences, NUL, bidi controls, half a surrogate pair
    cut            a stream that stops after the first word, as HTTP has it properly
    break          a stream whose connection breaks
    error          a stream with an error in its midst
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "completion_tokens_details": {"reasoning_tokens": 2},
}
RAW = "\x1b]0;title\x07\x1b[2Jred\x00\u202egnirts\u2066"
"""What the answer to `raw` begins with; half a surrogate pair follows it."""
LIMITS = {
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "599",
    "x-ratelimit-reset-requests": "100ms",
}
API_VERSION = "2024-10-21"


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ApiServer:
    """A server in a thread of this process.

    Attributes:
        key: The only one that opens the door.
    """

    key: str = ""
    port: int = 0
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/openai/deployments/{name}/chat/completions", self._azure)
        app.router.add_post("/vllm/v1/chat/completions", self._vllm)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _note(self, request: web.Request) -> dict[str, Any]:
        body: dict[str, Any] = await request.json()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.path, dict(request.query), headers, body))
        return body

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        body = await self._note(request)
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return _error(401, "Incorrect API key provided", "invalid_api_key")
        if "model" not in body:
            return _error(400, "you must provide a model parameter", None)
        return await _answer(request, body, reasoning="reasoning_content")

    async def _azure(self, request: web.Request) -> web.StreamResponse:
        body = await self._note(request)
        if request.headers.get("api-key") != self.key or "authorization" in request.headers:
            return _error(401, "Access denied due to invalid subscription key", "401")
        if request.query.get("api-version") != API_VERSION:
            return _error(404, "Resource not found", "404")
        if request.match_info["name"] == "gone":
            message = "The API deployment for this resource does not exist."
            return _error(404, message, "DeploymentNotFound")
        return await _answer(request, body, reasoning="reasoning_content", azure=True)

    async def _vllm(self, request: web.Request) -> web.StreamResponse:
        body = await self._note(request)
        if "guided_choice" in body and "top_k" not in body:
            return _error(400, "top_k is missing", None)
        return await _answer(request, body, reasoning="reasoning")


def _error(status: int, message: str, code: str | None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)


def _deltas(body: dict[str, Any], reasoning: str) -> tuple[list[dict[str, Any]], str]:
    """What is added to the message by each piece, and why it ends."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return [{"content": f"{last['tool_call_id']}: {last['content']}"}], "stop"
    word, _, words = last["content"].partition(" ")
    pieces = [{"content": one} for one in words.split(" ")]
    match word:
        case "think":
            return [{reasoning: "Let me "}, {reasoning: "see."}, *pieces], "stop"
        case "raw":
            return [{"content": RAW}, {"content": "\ud800."}], "stop"
        case "call":
            function = {"name": words, "arguments": ""}
            calls = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
            more = [[{"index": 0, "function": {"arguments": piece}}] for piece in ('{"a":', " 1}")]
            return [{"tool_calls": each} for each in (calls, *more)], "tool_calls"
    return pieces, "stop"


def _whole(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for delta in deltas:
        for name, value in delta.items():
            if name != "tool_calls":
                message[name] = (message.get(name) or "") + value
            elif "tool_calls" not in message:
                message[name] = json.loads(json.dumps(value))
            else:
                function = message[name][0]["function"]
                function["arguments"] += value[0]["function"]["arguments"]
    return message


async def _answer(
    request: web.Request, body: dict[str, Any], *, reasoning: str, azure: bool = False
) -> web.StreamResponse:
    deltas, finish = _deltas(body, reasoning)
    filtered = {"content_filter_results": {}} if azure else {}
    if not body.get("stream"):
        choice = {"index": 0, "message": _whole(deltas), "finish_reason": finish}
        answer = {"id": "x", "object": "chat.completion", "choices": [choice | filtered]}
        return web.json_response(answer | {"usage": USAGE}, headers=LIMITS)
    response = web.StreamResponse(headers={"content-type": "text/event-stream", **LIMITS})
    await response.prepare(request)
    word = str(body["messages"][-1]["content"]).partition(" ")[0]

    async def send(choices: list[dict[str, Any]], **more: Any) -> None:
        event = {"id": "x", "object": "chat.completion.chunk", "choices": choices} | more
        await response.write(b"data: " + json.dumps(event).encode() + b"\r\n\r\n")

    if azure:
        await send([], prompt_filter_results=[{"prompt_index": 0}])
    await response.write(b": keep-alive\r\n\r\n")
    for delta in ({"role": "assistant", "content": ""}, *deltas):
        await send([{"index": 0, "delta": delta, "finish_reason": None} | filtered])
        await asyncio.sleep(0.005)
        if delta in deltas and word in {"cut", "break", "error"}:
            return await _spoil(request, response, word)
    await send([{"index": 0, "delta": {}, "finish_reason": finish} | filtered])
    if body.get("stream_options", {}).get("include_usage"):
        await send([], usage=USAGE)
    await response.write(b"data: [DONE]\r\n\r\n")
    return response


async def _spoil(
    request: web.Request, response: web.StreamResponse, word: str
) -> web.StreamResponse:
    if word == "break":
        assert request.transport is not None
        request.transport.abort()
    if word == "error":
        error = {"message": "the engine died", "type": "InternalServerError", "code": 500}
        await response.write(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
    return response
