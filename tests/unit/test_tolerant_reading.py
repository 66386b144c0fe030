"""Answers in shapes that real servers sent: an odd field never invalidates an answer.

Each row names the public report, page or repository that shows its shape.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import api_named
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.apis.server_json import LEFT_OUT

Events = list[Any]


@dataclass(frozen=True)
class Seen:
    """An answer of a server, and the expected reading.

    Attributes:
        where: The source: `owner/repo#n` or a page.
        came: A whole answer, or the events of a stream, which ends after them.
        reads: Expected attributes of the reply or failure; `calls` are names and arguments.
    """

    where: str
    came: dict[str, Any] | Events
    reads: dict[str, Any] = field(default_factory=dict)
    api: str = "openai"


def chat(content: Any = "fine", *, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    """A whole chat completion; `message` and `choice` add fields to these objects."""
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": finish, **more.pop("choice", {})}
    return {"choices": [choice], **more}


def chunk(delta: Any, finish: Any = None, index: Any = 0, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish, **more}]}


def call(name: str | None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def calling(*pieces: dict[str, Any]) -> Events:
    """A stream with an event for each piece of a call."""
    begun = [chunk({"tool_calls": [piece]}) for piece in pieces]
    return [*begun, chunk({}, "tool_calls"), "[DONE]"]


def message(*blocks: Any, stop: Any = "end_turn", **more: Any) -> dict[str, Any]:
    return {"type": "message", "content": list(blocks), "stop_reason": stop, **more}


def content(*parts: Any, finish: Any = "STOP", **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}], **more}


def response(*items: Any, status: Any = "completed", **more: Any) -> dict[str, Any]:
    return {"object": "response", "status": status, "output": list(items), **more}


TEXT = {"type": "message", "content": [{"type": "output_text", "text": "fine"}]}
FINE = {"text": "fine"}
EMPTY = {"text": ""}
HALF = chunk({"content": "half"})
FAILED = {"outcome": "overload", "came": "half"}
FILTERED = {"outcome": "refused", "refused_kind": "content_filter"}
COUNT = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
COUNTED = {"tokens_in": 9, "tokens_out": 2}
ZEROS = dict.fromkeys(COUNT, 0)
SKY_SEA = [("sky", '{"x":1}'), ("sea", '{"y":2}')]
X, Y = '{"x":1}', '{"y":2}'

GENERATION_FAILED = [
    Seen("maximhq/bifrost#5425", chat("half", finish="error", usage={"total_tokens": 0}), FAILED),
    Seen("radixark/miles#3337", chat("half", finish="abort"), FAILED),
    Seen("vllm-project/vllm#57082", [HALF, chunk({}, "abort"), "[DONE]"], FAILED),
    Seen("promptfoo/promptfoo#9905", chat("half", finish="network_error"), FAILED),
    Seen("gethouston/houston#1211", [HALF, chunk({}, "network_error"), "[DONE]"], FAILED),
    *(
        Seen("no report", chat("half", finish=word), FAILED)
        for word in (
            *("error: upstream", "upstream error", "network-error", "error_limit"),
            *("EngineDeadError", "aborted_by_user", "exception", "cuda_oom", "OOM"),
        )
    ),
    Seen("no report", chat("half", message={"error": {"message": "gone"}}), FAILED),
    Seen("no report", [HALF, chunk({"error": {"message": "gone"}}), "[DONE]"], FAILED),
    Seen(
        "https://api-docs.deepseek.com/api/create-chat-completion",
        chat("half", finish="insufficient_system_resource"),
        FAILED,
    ),
    Seen(
        "AbanteAI/LoCoDiff-bench#31",
        chat("half", finish=None, choice={"error": {"code": 502, "message": "gone"}}),
        FAILED,
    ),
    Seen(
        "https://openrouter.ai/docs/api-reference/errors",
        chat("", finish="error", choice={"error": {"code": 429, "message": "slow down"}}),
        {"outcome": "rate"},
    ),
    Seen(
        "open-webui/computer#293",
        [HALF, chunk({}, "error", error={"code": 503, "message": "Provider returned error"})],
        FAILED,
    ),
    Seen("fox1245/NeoGraph#124", [HALF, {"error": "STREAM_EXPLODED"}, "[DONE]"], FAILED),
    Seen("Blaizzy/nativ#195", [{"error": "thinking_budget"}], {"outcome": "overload"}),
    Seen(
        "huggingface/text-generation-inference#2668",
        [HALF, {"error": {"message": "Request failed", "http_status_code": 500}}, "[DONE]"],
        FAILED,
    ),
    Seen(
        "lm-sys/FastChat#1515",
        [HALF, {"error_code": 50001, "text": "**NETWORK ERROR**"}, "[DONE]"],
        {"outcome": "malformed", "came": "half"},
    ),
    Seen("coder/coder#26005", ["[DONE]"], {"outcome": "malformed"}),
    Seen("lemonade-sdk/lemonade#2826", [HALF], {"outcome": "malformed", "came": "half"}),
    Seen(
        "epam/ai-dial-adapter-vertexai#85",
        content({"text": "half"}, finish="OTHER"),
        FAILED,
        "gemini",
    ),
    Seen(
        "https://docs.claude.com/en/docs/build-with-claude/streaming",
        [
            {"type": "message_start", "message": {"content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "half"},
            },
            {"type": "error", "error": {"type": "api_error", "message": "Internal"}},
        ],
        FAILED,
        "anthropic",
    ),
    Seen(
        "https://platform.openai.com/docs/api-reference/responses/object",
        response(
            {"type": "message", "content": [{"type": "output_text", "text": "half"}]},
            status="failed",
        ),
        FAILED,
        "openai-responses",
    ),
    Seen(
        "ddutchie/cairn#127",
        [
            {
                "type": "response.failed",
                "response": response(
                    status="failed", error={"code": "server_error", "message": "no"}
                ),
            }
        ],
        {"outcome": "overload"},
        "openai-responses",
    ),
    Seen(
        "openclaw/openclaw#108989",
        [{"type": "response.output_text.delta", "delta": "half"}],
        {"outcome": "malformed", "came": "half"},
        "openai-responses",
    ),
]
PROVIDER_DECIDED = [
    Seen("HKUDS/Vibe-Trading#308", chat("ha", finish="SAFETY"), FILTERED),
    Seen("HKUDS/Vibe-Trading#308", [HALF, chunk({}, "RECITATION"), "[DONE]"], FILTERED),
    Seen("HKUDS/Vibe-Trading#308", chat(None, finish="PROHIBITED_CONTENT"), FILTERED),
    Seen("HKUDS/Vibe-Trading#308", chat(None, finish="BLOCKLIST"), FILTERED),
    Seen("HKUDS/Vibe-Trading#308", chat(None, finish="SPII"), FILTERED),
    Seen(
        "ByCerfrance's LlmApiLib, FinishReasonTest.php",
        chat("ha", finish="content_filter: RECITATION"),
        FILTERED,
    ),
    Seen("BerriAI/litellm#23562", chat("ha", finish="content_filtered"), FILTERED),
    Seen("BerriAI/litellm#24373", chat("ha", finish="sensitive"), FILTERED),
    Seen("BerriAI/litellm#40864", content(finish="IMAGE_RECITATION"), FILTERED, "gemini"),
    Seen(
        "pydantic/pydantic-ai#5221",
        response(TEXT, status="incomplete", incomplete_details={"reason": "content_filter"}),
        FILTERED,
        "openai-responses",
    ),
]
MODEL_ENDED = [
    *(
        Seen("no report", chat(finish=word), FINE | {"finish_reason": word})
        for word in ("repetition", "preempted", "unknown", "bloom", "max_time")
    ),
    Seen("mozilla-ai/any-llm#1200", chat(finish="model_context_window_exceeded"), FINE),
    Seen(
        "NousResearch/hermes-agent#83886",
        content(finish="MALFORMED_FUNCTION_CALL"),
        EMPTY,
        "gemini",
    ),
    Seen(
        "agentjido/req_llm#944",
        {"candidates": [{"finishReason": "UNEXPECTED_TOOL_CALL"}]},
        EMPTY,
        "gemini",
    ),
    Seen(
        "AstrBotDevs/AstrBot#6735",
        {"candidates": [{"content": {}, "finishReason": "STOP"}]},
        EMPTY,
        "gemini",
    ),
    Seen("vllm-project/vllm#45736", chat(None), EMPTY),
    Seen("decolua/9router#2229", chat(""), EMPTY),
    Seen("sgl-project/sglang#4550", [chunk({"content": ""}), "[DONE]"], EMPTY),
    Seen("QuantumNous/new-api#4362", response(), EMPTY, "openai-responses"),
    Seen("https://docs.claude.com/en/api/handling-stop-reasons", message(), EMPTY, "anthropic"),
    Seen(
        "UKGovernmentBEIS/inspect_ai#1198",
        chat(None, message={"refusal": "No."}),
        {"text": "No.", "refusal": "No."},
    ),
]
IGNORED_FIELDS = [
    Seen("mlflow/mlflow#14410", chat(message={"tool_calls": []}), FINE),
    Seen("lidge-jun/opencodex#1468", chat(message={"tool_calls": None}), FINE),
    Seen("no report", chat(message={"tool_calls": {}}), FINE),
    Seen(
        "mozilla-ai/any-llm#1112",
        chat(message={"reasoning": {"content": "t"}}),
        FINE | {"reasoning": None},
    ),
    Seen(
        "mozilla-ai/any-llm#1112",
        [chunk({"content": "fine", "reasoning": {"content": "t"}}), chunk({}, "stop")],
        FINE,
    ),
    Seen(
        "pydantic/pydantic-ai#3658",
        chat(
            message={"reasoning_content": ["t"], "reasoning_details": [{"type": "reasoning.text"}]}
        ),
        FINE,
    ),
    Seen("no report", chat(message={"refusal": False}), FINE | {"refusal": None}),
    Seen("https://docs.mistral.ai/api/endpoint/chat", chat(choice={"index": "0"}), FINE),
    Seen(
        "agentgateway/agentgateway#2371",
        {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]},
        FINE,
    ),
    Seen(
        "sgl-project/sglang#1407",
        chat(finish={"type": "stop", "matched": 2}),
        FINE | {"finish_reason": None},
    ),
    Seen("togethercomputer/together-python#239", chat(finish=""), FINE),
    Seen("BerriAI/litellm#4654", chat(created=1720688079.5, finish_reason="eos_token"), FINE),
    Seen(
        "sashabaranov/go-openai#1003",
        chat(created="1720688079", id=7, model=None, object=5),
        FINE | {"id": None},
    ),
    Seen(
        "guoqingbao/xinfer#129",
        [chunk({"content": "fine"}, error=None), chunk({}, "stop", error=None)],
        FINE,
    ),
    Seen("BerriAI/litellm#18493", chat(error=""), FINE),
    Seen("BerriAI/litellm#18493", chat(error={}), FINE),
    Seen("no report", chat(error=False, usage="none"), FINE | {"tokens_in": None}),
    *(
        Seen("no report", chat(error=error), FINE)
        for error in (
            *({"code": 0, "message": "success"}, {"code": 200, "message": "OK"}, 0.0, "none"),
            *(" ", "null", "false", [None], [{}], {"message": " "}, {"a-b": None}),
        )
    ),
    Seen("no report", chat(type=1, n=int("9" * 600)), FINE),
    Seen(
        "no report",
        {"choices": chat(message={"refusal": False})["choices"] * 128},
        FINE | {"refusal": None},
    ),
    Seen(
        "no report",
        {"choices": [*chat()["choices"], *chat("b", message={"refusal": 5})["choices"] * 128]},
        FINE,
    ),
    Seen(
        "no report",
        [{"choices": [{"delta": odd}]} for odd in ([], "", False, None)]
        + [chunk({"content": "fine"}), chunk([], "stop")],
        FINE,
    ),
    Seen(
        "no report",
        [
            chunk({"content": "fi"}),
            chunk({"content": "ne"}),
            {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]},
        ],
        FINE,
    ),
    Seen(
        "no report",
        [{"choices": [{"message": {"content": piece}}]} for piece in ("fi", "ne")] + ["[DONE]"],
        FINE,
    ),
    Seen(
        "no report",
        [
            chunk({"content": "fine"}),
            {
                "choices": [
                    {
                        "message": {"content": "fine", "tool_calls": [call("sky", X, id="a")]},
                        "finish_reason": "stop",
                    }
                ]
            },
        ],
        FINE | {"calls": [("sky", '{"x":1}')]},
    ),
    Seen("no report", content({"text": "fine"}, finish=["STOP"]), FINE, "gemini"),
    Seen("no report", content({"text": "fine"}, finish=1), FINE, "gemini"),
    Seen(
        "no report",
        {"candidates": [{**content({"text": "fine"})["candidates"][0], "index": 1}]},
        FINE,
        "gemini",
    ),
    Seen(
        "no report",
        {
            "candidates": [
                {**content({"text": "other"})["candidates"][0], "index": 1},
                {**content({"text": "fine"})["candidates"][0], "index": 0},
            ]
        },
        FINE,
        "gemini",
    ),
    Seen(
        "QuantumNous/new-api, TestInBandStreamError",
        chat(error={"message": "", "type": "", "param": "", "code": None}),
        FINE,
    ),
    Seen(
        "lidge-jun/opencodex#1468",
        message({"type": "text", "text": "fine", "citations": {}}, model=7, usage=[]),
        FINE,
        "anthropic",
    ),
    Seen(
        "no report",
        content({"text": "fine", "thought": "false"}, modelVersion=7),
        FINE,
        "gemini",
    ),
    Seen("no report", response({**TEXT, "phase": 5}, id=7), FINE, "openai-responses"),
]
CALLS = [
    # Every piece has a new id.
    Seen(
        "BerriAI/litellm#28223",
        calling(
            call("sky", "", index=0, id="a"),
            call(None, X[:3], index=0, id="b"),
            call(None, X[3:], index=0, id="c"),
        ),
        {"calls": SKY_SEA[:1], "ids": ["a"]},
    ),
    # A second piece with the name only.
    Seen(
        "no report",
        calling(call("sky", X, index=0, id="a"), call("sky", "", index=0, id="")),
        {"calls": SKY_SEA[:1], "ids": ["a"]},
    ),
    Seen(
        "anomalyco/opencode#19947",
        chat(None, finish="tool_calls", message={"tool_calls": [call("sky", X, id=123)]}),
        {"calls": SKY_SEA[:1], "ids": ["123"]},
    ),
    Seen(
        "openai/openai-dotnet#429",
        chat(None, finish="tool_calls", message={"tool_calls": [call("sky", X, id="", index="0")]}),
        {"calls": SKY_SEA[:1]},
    ),
    Seen(
        "ollama/ollama#15457",
        calling(call("sky", X, index=0, id="a"), call("sea", Y, index=0, id="b")),
        {"calls": SKY_SEA, "ids": ["a", "b"]},
    ),
    Seen(
        "ollama/ollama#7881",
        calling(call("sky", X, id="a"), call("sea", Y, id="b")),
        {"calls": SKY_SEA},
    ),
    Seen(
        "64bit/async-openai#432",
        calling(call("sky", X, id="a"), call("sky", Y, id="b")),
        {"calls": [("sky", X), ("sky", Y)]},
    ),
    Seen(
        "InternLM/lmdeploy#3412 (vLLM)",
        calling(
            call("sky", "", index=0, id="a"),
            call(None, X, index=0, id=""),
            call("sea", "", index=0, id="b"),
            call(None, '{"y"', index=0, id=""),
            call(None, ":2}", index=0),
        ),
        {"calls": SKY_SEA, "ids": ["a", "b"]},
    ),
    Seen(
        "InternLM/lmdeploy#3412 (SGLang)",
        calling(
            call("sky", "", index=0, id="0"),
            call(None, X, index=0, id="0"),
            call("sea", "", index=0, id="1"),
            call(None, Y, index=0, id="1"),
        ),
        {"calls": SKY_SEA},
    ),
    Seen(
        "huggingface/smolagents#1958",
        calling(call("sky", X, index=0), call("sky", Y, index=0)),
        {"calls": [("sky", X), ("sky", Y)]},
    ),
    Seen(
        "huggingface/smolagents#1958",
        [
            chunk({"tool_calls": [call("sky", X, index=0), call("sea", Y, index=0)]}),
            chunk({}, "tool_calls"),
        ],
        {"calls": SKY_SEA},
    ),
    Seen(
        "huggingface/text-generation-inference#2794",
        calling(
            call("sky", "{", index=0, id=""),
            call("sky", '"x"', index=0, id=""),
            call("sky", ":1}", index=0, id=""),
            call("sea", Y, index=0, id=""),
        ),
        {"calls": SKY_SEA},
    ),
    Seen(
        "QwenLM/Qwen-Agent#943",
        calling(
            call("sky", "", index=0, id="a"),
            call("sea", "", index=1, id="b"),
            call(None, '{"x"', index=0),
            call(None, Y, index=1),
            call(None, ":1}", index=0),
        ),
        {"calls": SKY_SEA},
    ),
    Seen(
        "oracle/langchain-oracle#254",
        calling(
            call("sky", '{"x"', index=0, id="a"),
            call("sea", Y, index=1, id="b"),
            call(None, ":1}", index=1, id="a"),
        ),
        {"calls": SKY_SEA},
    ),
    Seen(
        "maximhq/bifrost#1829",
        calling(
            call("sky", '{"x"', index=0, id="a"),
            call("sea", '{"y"', index=0, id="b"),
            call(None, ":1}", index=0, id="a"),
            call(None, ":2}", index=0, id="b"),
        ),
        {"calls": SKY_SEA},
    ),
    Seen(
        "HKUDS/nanobot#1555",
        {
            "choices": [
                chat("Let me see", finish="tool_calls")["choices"][0],
                {
                    "message": {"tool_calls": [call("sky", X, id="a")]},
                    "finish_reason": "tool_calls",
                },
            ]
        },
        {"text": "Let me see", "calls": SKY_SEA[:1]},
    ),
    Seen(
        "zeroclaw-labs/zeroclaw#2136",
        [
            chunk({"content": "so"}),
            chunk({"tool_calls": [call("sky", X, id="a")]}, index=1),
            chunk({}, "tool_calls", index=1),
        ],
        {"text": "so", "calls": SKY_SEA[:1]},
    ),
    Seen(
        "huggingface/text-generation-inference, router/src/lib.rs of 2.0",
        [chunk({"tool_calls": call("sky", X, index=0)}), chunk({}, "tool_calls")],
        {"calls": SKY_SEA[:1]},
    ),
]
USAGE = [
    Seen(
        "BerriAI/litellm#14127",
        chat(
            usage={
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 41,
                "completion_tokens_details": {"reasoning_tokens": 30},
            }
        ),
        {"tokens_out": 32, "reasoning_tokens": 30},
    ),
    Seen(
        "UKGovernmentBEIS/inspect_ai#5528",
        chat(usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 41}),
        {"tokens_in": 9, "tokens_out": 32},
    ),
    Seen(
        "https://platform.openai.com/docs/guides/reasoning",
        chat(usage={**COUNT, "completion_tokens_details": {"reasoning_tokens": 1}}),
        COUNTED,
    ),
    Seen(
        "maximhq/bifrost#5425",
        chat(usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 0}),
        COUNTED,
    ),
    Seen(
        "earendil-works/pi#2017",
        [chunk({"content": "fine"}), chunk({}, "stop", usage=COUNT)],
        COUNTED,
    ),
    Seen(
        "vercel/ai#1651",
        [chunk({"content": "fine"}), {**chunk({}, "stop"), "x_groq": {"id": "r", "usage": COUNT}}],
        COUNTED,
    ),
    Seen(
        "router-for-me/CLIProxyAPI#3076",
        [{**chunk({"content": "fine"}), "usage": ZEROS}, {**chunk({}, "stop"), "usage": COUNT}],
        COUNTED,
    ),
    Seen(
        "openai/openai-agents-js#1474",
        [{**chunk({"content": "fine"}), "usage": COUNT}, {**chunk({}, "stop"), "usage": None}],
        COUNTED,
    ),
    Seen(
        "no report",
        [
            {
                **chunk({"content": "fine"}, "stop"),
                "usage": {**COUNT, "completion_tokens_details": {"reasoning_tokens": 1}},
            },
            {
                "choices": [],
                "usage": {**ZEROS, "completion_tokens_details": {"reasoning_tokens": 0}},
            },
        ],
        COUNTED | {"reasoning_tokens": 1},
    ),
    Seen(
        "envoyproxy/ai-gateway#1631",
        [
            {
                "type": "message_start",
                "message": {"content": [], "usage": {"input_tokens": 9, "output_tokens": 1}},
            },
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"input_tokens": 0, "output_tokens": 2},
            },
        ],
        COUNTED,
        "anthropic",
    ),
    Seen(
        "BerriAI/litellm#41406",
        [
            {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 0}}},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"input_tokens": 9, "output_tokens": 2},
            },
        ],
        COUNTED,
        "anthropic",
    ),
]
PUT_TOGETHER = [
    Seen(
        "elie222/rakazo#416",
        [chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b"}, "stop")],
        {"text": "a\U0001f600b"},
    ),
    Seen(
        "elizaOS/eliza#30904",
        [
            chunk({"content": "\ud83d"}),
            chunk({"content": "\ude00\ud83d"}),
            chunk({"content": "\ude01"}),
            "[DONE]",
        ],
        {"text": "\U0001f600\U0001f601"},
    ),
    Seen(
        "elie222/rakazo#424",
        [chunk({"content": "a\ud83d"}), chunk({"content": "b"}, "stop")],
        {"text": "a\\ud83db"},
    ),
    Seen(
        "elie222/rakazo#424",
        [chunk({"content": "a\\\\ud83d"}), chunk({"content": "b"}, "stop")],
        {"text": "a\\\\ud83db"},
    ),
    Seen(
        "no report",
        [
            chunk({"content": "a\ud83d"}),
            {"choices": []},
            chunk({"content": "x\ud83d"}, index=1),
            chunk({"content": "\ude00b"}),
            chunk({"content": "\ude01"}, "stop", index=1),
        ],
        {"text": "a\U0001f600b", "texts": ["a\U0001f600b", "x\U0001f601"]},
    ),
    Seen(
        "no report",
        calling(call("sky", '{"x":"\ud83d', id="a"), call(None, '\ude00"}')),
        {"calls": [("sky", '{"x":"\U0001f600"}')]},
    ),
    Seen(
        "no report",
        [
            content({"text": "a\ud83d"}, finish=None),
            {"usageMetadata": {}},
            content({"text": "\ude00\ud83d"}),
        ],
        {"text": "a\U0001f600\\ud83d"},
        "gemini",
    ),
    Seen(
        "QuantumNous/new-api#4362",
        [
            {"type": "response.output_item.done", "item": TEXT},
            {"type": "response.completed", "response": response()},
        ],
        FINE,
        "openai-responses",
    ),
    Seen(
        "decolua/9router#705",
        [
            {"type": "response.output_item.done", "item": TEXT},
            {"type": "response.completed", "response": {"status": "completed", "error": None}},
        ],
        FINE,
        "openai-responses",
    ),
]


@contextmanager
def noted_in(left_out: set[str]):
    token = LEFT_OUT.set(left_out)
    yield
    LEFT_OUT.reset(token)


def read(seen: Seen) -> Reply | Failure:
    api = api_named(seen.api)
    if isinstance(seen.came, dict):
        return api.reply(json.dumps(seen.came).encode(), "p/i/k", 0.5)
    stream = api.stream()
    for event in seen.came:
        text = event if isinstance(event, str) else json.dumps(event)
        stream.feed(f"data: {text}\n\n".encode(), 1.0)
    stream.end(2.0)
    return stream.reply("p/i/k", 1.5)


def as_read(found: Reply | Failure, name: str) -> Any:
    if name == "calls":
        return [(one.name, one.arguments) for one in found.tool_calls]
    if name == "texts":
        return [one.text for one in found.choices]
    if name == "ids":
        return [one.call_id for one in found.tool_calls]
    if name == "came":
        return found.came and found.came.text
    return getattr(found, name)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(one, id=f"{kind}{number} {one.where}")
        for kind, rows in {
            "failed": GENERATION_FAILED,
            "filtered": PROVIDER_DECIDED,
            "ended": MODEL_ENDED,
            "ignored": IGNORED_FIELDS,
            "calls": CALLS,
            "usage": USAGE,
            "joined": PUT_TOGETHER,
        }.items()
        for number, one in enumerate(rows)
    ],
)
def test_answer_is_read_as_expected(seen):
    found = read(seen)
    assert isinstance(found, Failure if "outcome" in seen.reads else Reply), found
    assert {name: as_read(found, name) for name in seen.reads} == seen.reads
    if isinstance(found, Failure):
        assert found.maybe_billed or found.outcome == "refused"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            Seen("", chat(message={"reasoning": {"content": "t"}})),
            {"choices.message.reasoning (object)"},
        ),
        (
            Seen("", chat(message={"refusal": False}, choice={"index": "0"})),
            {"choices.message.refusal (bool)"},
        ),
        (Seen("", chat(finish=["stop"])), {"choices.finish_reason (array)"}),
        (
            Seen(
                "",
                [
                    chunk({"content": "a", "reasoning": 1.5}),
                    chunk({"content": "b", "refusal": {}}, "stop"),
                ],
            ),
            {"choices.delta.refusal (object)"},
        ),
        (Seen("", content({"text": "fine", "thought": []}), api="gemini"), {"thought (array)"}),
        (Seen("", chat(id=7, usage="none")), {"id (int)", "usage (str)"}),
        (
            Seen("", message(id=7, model=[], usage=5), api="anthropic"),
            {"id (int)", "model (array)", "usage (int)"},
        ),
        (
            Seen("", content(usageMetadata=[], responseId=1), api="gemini"),
            {"usageMetadata (array)", "responseId (int)"},
        ),
        (
            Seen("", response(usage=[], model={}), api="openai-responses"),
            {"usage (array)", "model (object)"},
        ),
        (Seen("", chat(error={}, created="x", id=None, usage=None)), set()),
        (Seen("", chat(5)), set()),
    ],
)
def test_ignored_fields_are_noted_by_name_and_type(seen, said):
    left_out = set()
    with noted_in(left_out):
        read(seen)
        read(seen)
    read(Seen("", chat(message={"reasoning": []})))
    assert left_out == said


@pytest.mark.parametrize("came", [chat(5), chat({"text": "a"}), {"choices": {}}, {"choices": [5]}])
def test_answer_with_odd_content_is_malformed(came):
    assert read(Seen("", came)).outcome == "malformed"


def test_repeated_odd_field_counts_once():
    calls = [call(None, X, id=[5], index="0") for _ in range(2_000)]
    assert len(read(Seen("", chat(message={"tool_calls": calls}))).tool_calls) == 2_000


def test_answer_with_too_many_kinds_of_odd_fields_is_malformed():
    odd = ([], {}, False, 5)
    fields = ("reasoning", "reasoning_content", "refusal")
    several = [
        chat(message=dict.fromkeys(fields, one), choice={"index": two}, finish=three)["choices"][0]
        for one in odd
        for two in ([], {}, False, "x")
        for three in ([], {}, False)
    ]
    assert (
        read(Seen("", {"choices": several, "type": [], "object": [], "x_groq": 5})).outcome
        == "malformed"
    )
    assert read(Seen("", {"choices": several[:3]})).text == "fine"


@pytest.mark.parametrize(
    "came",
    [
        chat("a" * 2_000_000, message={"refusal": 5}),
        chat("a" * 2_000_000, type=1, more=["b" * 1_000_000, {"c": []}]),
        chat("a" * 2_000_000, message={"reasoning": ["b" * 2_000_000]}),
    ],
)
def test_large_answer_with_an_odd_field_is_read(came):
    assert read(Seen("", came)).text == "a" * 2_000_000


@pytest.mark.parametrize(
    "odd",
    [
        b'{"choices":[{"finish_reason":5},' + b"1," * 7_000_000 + b"1]}",
        b'{"choices":[{"message":{"tool_calls":[' + b"null," * 3_000_000 + b"null]}}]}",
        b'{"choices":[{"finish_reason":5},' + b"[]," * 5_000_000 + b"1]}",
    ],
    ids=["numbers", "nothing", "lists"],
)
def test_answer_with_millions_of_odd_items_is_malformed_quickly(odd):
    begun_s = time.perf_counter()
    assert api_named("openai").reply(odd, "l", 1.0).outcome == "malformed"
    assert time.perf_counter() - begun_s < 2.0


def test_numbers_out_of_range_are_ignored():
    whole = json.dumps(chat(type=1)).encode()
    for number in (b"9" * 5_000, b"1e400"):
        for name in (b"n", b"id", b"created"):
            body = b'{"' + name + b'":' + number + b"," + whole[1:]
            assert api_named("openai").reply(body, "l", 1.0).text == "fine"
        body = whole.replace(b'"index": 0', b'"index": ' + number)
        assert api_named("openai").reply(body, "l", 1.0).text == "fine"
