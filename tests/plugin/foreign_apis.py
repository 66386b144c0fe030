"""Speaks as OpenAI, Azure OpenAI and vLLM do, and writes down what it got.

The path says which API is meant:

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
from dataclasses import dataclass
from typing import Any

from tests.raw_server import Peer, Request, json_response

USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "completion_tokens_details": {"reasoning_tokens": 2},
}
RAW = "\x1b]0;title\x07\x1b[2Jred\x00\u202egnirts\u2066"
"""What the answer to `raw` begins with; half a surrogate pair follows it."""
LIMITS = (
    b"x-ratelimit-limit-requests: 600",
    b"x-ratelimit-remaining-requests: 599",
    b"x-ratelimit-reset-requests: 100ms",
)
API_VERSION = "2024-10-21"


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, Any]


class Apis:
    """The three of them.

    Attributes:
        key: The only one that opens the door.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.seen: list[Seen] = []

    async def answer(self, peer: Peer, request: Request) -> None:
        body = request.json()
        self.seen.append(Seen(request.path, request.query, dict(request.headers), body))
        match request.path.strip("/").split("/"):
            case ["v1", "chat", "completions"]:
                refusal = self._openai(request, body)
            case ["openai", "deployments", name, "chat", "completions"]:
                refusal = self._azure(request, name)
            case ["vllm", "v1", "chat", "completions"]:
                refusal = self._vllm(body)
            case _:
                refusal = _error(404, "Not Found", None)
        if refusal is not None:
            await peer.send(refusal)
            return
        reasoning = "reasoning" if request.path.startswith("/vllm/") else "reasoning_content"
        await _answer(peer, body, reasoning=reasoning, azure="/deployments/" in request.path)

    def _openai(self, request: Request, body: dict[str, Any]) -> bytes | None:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return _error(401, "Incorrect API key provided", "invalid_api_key")
        if "model" not in body:
            return _error(400, "you must provide a model parameter", None)
        return None

    def _azure(self, request: Request, name: str) -> bytes | None:
        if request.headers.get("api-key") != self.key or "authorization" in request.headers:
            return _error(401, "Access denied due to invalid subscription key", "401")
        if request.query.get("api-version") != API_VERSION:
            return _error(404, "Resource not found", "404")
        if name == "gone":
            message = "The API deployment for this resource does not exist."
            return _error(404, message, "DeploymentNotFound")
        return None

    def _vllm(self, body: dict[str, Any]) -> bytes | None:
        if "guided_choice" in body and "top_k" not in body:
            return _error(400, "top_k is missing", None)
        return None


def _error(status: int, message: str, code: str | None) -> bytes:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return json_response({"error": error}, status=status)


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


async def _answer(peer: Peer, body: dict[str, Any], *, reasoning: str, azure: bool) -> None:
    deltas, finish = _deltas(body, reasoning)
    filtered = {"content_filter_results": {}} if azure else {}
    if not body.get("stream"):
        choice = {"index": 0, "message": _whole(deltas), "finish_reason": finish}
        answer = {"id": "x", "object": "chat.completion", "choices": [choice | filtered]}
        await peer.send(json_response(answer | {"usage": USAGE}, *LIMITS))
        return
    head = [b"HTTP/1.1 200 OK", b"content-type: text/event-stream", *LIMITS]
    await peer.send(b"\r\n".join([*head, b"transfer-encoding: chunked"]) + b"\r\n\r\n")
    word = str(body["messages"][-1]["content"]).partition(" ")[0]

    async def write(event: bytes) -> None:
        await peer.send(b"%x\r\n%b\r\n" % (len(event), event))

    async def send(choices: list[dict[str, Any]], **more: Any) -> None:
        event = {"id": "x", "object": "chat.completion.chunk", "choices": choices} | more
        await write(b"data: " + json.dumps(event).encode() + b"\r\n\r\n")

    if azure:
        await send([], prompt_filter_results=[{"prompt_index": 0}])
    await write(b": keep-alive\r\n\r\n")
    for delta in ({"role": "assistant", "content": ""}, *deltas):
        await send([{"index": 0, "delta": delta, "finish_reason": None} | filtered])
        await asyncio.sleep(0.005)
        if delta in deltas and word == "break":
            peer.close()
            return
        if delta in deltas and word == "cut":
            break
        if delta in deltas and word == "error":
            error = {"message": "the engine died", "type": "InternalServerError", "code": 500}
            await write(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
            await write(b"data: [DONE]\n\n")
            break
    else:
        await send([{"index": 0, "delta": {}, "finish_reason": finish} | filtered])
        if body.get("stream_options", {}).get("include_usage"):
            await send([], usage=USAGE)
        await write(b"data: [DONE]\r\n\r\n")
    await peer.send(b"0\r\n\r\n")
