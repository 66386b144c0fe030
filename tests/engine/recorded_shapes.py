"""Answers in the shapes that OpenAI and Azure OpenAI document, with values made up."""

from __future__ import annotations

import json
from typing import Any

OPENAI_HEADERS = {
    "content-type": "application/json",
    "openai-organization": "org-example",
    "openai-processing-ms": "412",
    "openai-version": "2020-10-01",
    "x-ratelimit-limit-requests": "5000",
    "x-ratelimit-limit-tokens": "160000",
    "x-ratelimit-remaining-requests": "4999",
    "x-ratelimit-remaining-tokens": "159976",
    "x-ratelimit-reset-requests": "12ms",
    "x-ratelimit-reset-tokens": "8ms",
    "x-request-id": "req_0123456789abcdef",
}
AZURE_HEADERS = {
    "content-type": "application/json",
    "apim-request-id": "bb943c68-99ed-46ab-bda9-a5efbdf5897a",
    "azureml-model-session": "d008-20240215231538",
    "x-ms-region": "North Central US",
    "x-ratelimit-remaining-requests": "79",
    "x-ratelimit-remaining-tokens": "61353",
    "x-request-id": "3a8b1a44-a02c-4a07-b51d-1c88acec4c4f",
}
SAFE = {
    name: {"filtered": False, "severity": "safe"}
    for name in ("hate", "self_harm", "sexual", "violence")
}
USAGE = {
    "prompt_tokens": 19,
    "completion_tokens": 10,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 4,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
TOOL_CALL = {
    "id": "call_abc123",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{\n"location": "Boston"\n}'},
}


def completion(message: dict[str, Any], *, finish: str = "stop") -> dict[str, Any]:
    """A whole answer of OpenAI."""
    whole = {"role": "assistant", "content": None, "refusal": None, "annotations": []} | message
    choice = {"index": 0, "message": whole, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1741569952,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [choice],
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
    }


def azure_completion(message: dict[str, Any], *, finish: str = "stop") -> dict[str, Any]:
    """The same of Azure, which adds what its filter found."""
    body = completion(message, finish=finish)
    body["choices"][0]["content_filter_results"] = SAFE
    body["prompt_filter_results"] = [{"prompt_index": 0, "content_filter_results": SAFE}]
    return body


def stream(*deltas: dict[str, Any], finish: str = "stop", azure: bool = False) -> bytes:
    """A streamed answer; Azure begins with a piece without choices."""
    common = {
        "id": "chatcmpl-123",
        "object": "chat.completion.chunk",
        "created": 1694268190,
        "model": "" if azure else "gpt-4o-mini",
        "system_fingerprint": "fp_44709d6fcb",
    }
    filtered = {"content_filter_results": SAFE} if azure else {}
    pieces: list[dict[str, Any]] = []
    if azure:
        results = [{"prompt_index": 0, "content_filter_results": SAFE}]
        pieces.append(common | {"choices": [], "prompt_filter_results": results})
    for number, delta in enumerate(({"role": "assistant", "content": ""}, *deltas, {})):
        ends = number == len(deltas) + 1
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish if ends else None,
        }
        pieces.append(common | {"choices": [choice | filtered], "usage": None})
    pieces.append(common | {"choices": [], "usage": USAGE})
    lines = [f"data: {json.dumps(piece)}\n\n" for piece in pieces]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def openai_error(message: str, kind: str, code: str | None) -> dict[str, Any]:
    """An error of OpenAI."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


AZURE_FILTERED = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content "
        "management policy. Please modify your prompt and retry.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"hate": {"filtered": True, "severity": "high"}},
        },
    }
}
AZURE_NO_DEPLOYMENT = {
    "error": {
        "code": "DeploymentNotFound",
        "message": "The API deployment for this resource does not exist. If you created the "
        "deployment within the last 5 minutes, please wait a moment and try again.",
    }
}
AZURE_NO_ACCESS = {
    "error": {
        "code": "401",
        "message": "Access denied due to invalid subscription key or wrong API endpoint.",
    }
}
AZURE_TOO_FAST = {
    "error": {
        "code": "429",
        "message": "Requests to the ChatCompletions_Create Operation under Azure OpenAI API "
        "version 2024-10-21 have exceeded token rate limit of your current pricing tier. "
        "Please retry after 7 seconds.",
    }
}
