"""Answers in the shapes that OpenAI and Azure OpenAI document, with invented values."""

from __future__ import annotations

import json
from typing import Any

_OPENAI_HEADERS = (
    b"openai-organization: org-example",
    b"openai-processing-ms: 412",
    b"x-ratelimit-limit-requests: 5000",
    b"x-ratelimit-limit-tokens: 160000",
    b"x-ratelimit-remaining-requests: 4999",
    b"x-ratelimit-remaining-tokens: 159976",
    b"x-ratelimit-reset-requests: 12ms",
    b"x-ratelimit-reset-tokens: 8ms",
)
_AZURE_HEADERS = (
    b"apim-request-id: bb943c68-99ed-46ab-bda9-a5efbdf5897a",
    b"azureml-model-session: d008-20240215231538",
    b"x-ratelimit-remaining-requests: 79",
    b"x-ratelimit-remaining-tokens: 61353",
)
_SAFE = {
    name: {"filtered": False, "severity": "safe"}
    for name in ("hate", "self_harm", "sexual", "violence")
}
_OF_THE_PROMPT = {"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _SAFE}]}
_USAGE = {
    "prompt_tokens": 19,
    "completion_tokens": 10,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 4, "audio_tokens": 0},
}


def headers(azure: bool = False) -> tuple[bytes, ...]:
    """The headers of every answer, including limits."""
    return _AZURE_HEADERS if azure else _OPENAI_HEADERS


def completion(message: dict[str, Any], *, azure: bool = False) -> dict[str, Any]:
    """A whole answer; Azure adds the results of its filter."""
    whole = {"role": "assistant", "content": None, "refusal": None, "annotations": []} | message
    choice = {"index": 0, "message": whole, "logprobs": None, "finish_reason": "stop"}
    body = {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1741569952,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [choice | ({"content_filter_results": _SAFE} if azure else {})],
        "usage": _USAGE,
    }
    return body | (_OF_THE_PROMPT if azure else {})


def stream(*deltas: dict[str, Any], azure: bool = False) -> bytes:
    """A streamed answer; Azure begins with a piece without choices."""
    common = {"id": "chatcmpl-123", "object": "chat.completion.chunk", "created": 1694268190}
    filtered = {"content_filter_results": _SAFE} if azure else {}
    pieces = [{"choices": []} | _OF_THE_PROMPT] if azure else []
    for delta in ({"role": "assistant", "content": ""}, *deltas):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        pieces.append({"choices": [choice | filtered], "usage": None})
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    pieces += [{"choices": [last | filtered], "usage": None}, {"choices": [], "usage": _USAGE}]
    lines = [f"data: {json.dumps(common | piece)}\n\n" for piece in pieces]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def _error(message: str, kind: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


WRONG_KEY = _error("Incorrect API key provided.", "invalid_request_error", "invalid_api_key")
TOO_FAST = _error("Rate limit reached for m", "requests", "rate_limit_exceeded")
BROKEN = _error("The server had an error", "server_error", None)
TOO_LONG = _error(
    "This model's maximum context length is 8192 tokens.",
    "invalid_request_error",
    "context_length_exceeded",
)
