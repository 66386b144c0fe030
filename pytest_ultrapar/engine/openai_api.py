"""OpenAI's chat-completions protocol, as vLLM and most gateways speak it too; not streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.engine.failure import Failure
from pytest_ultrapar.engine.reply import Messages, Reply, ToolCall

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import LaneId

PATH = "/chat/completions"
RESERVED = frozenset({"model", "messages", "stream"})
"""Parameters that a suite may not set: they are the client's own business."""


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str | None = ""


class _ToolCall(msgspec.Struct):
    id: str | None = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Completion)
_encoder = msgspec.json.Encoder()


def encode_request(api_name: str, messages: Messages, parameters: dict[str, Any]) -> bytes:
    """The request's body.

    Raises:
        TypeError: A message or parameter is nothing that JSON can hold.
        ValueError: A text holds a lone surrogate.
    """
    return _encoder.encode({"model": api_name, "messages": list(messages), **parameters})


def decode_response(body: bytes, lane: LaneId, latency_s: float) -> Reply | Failure:
    """The reply in a 200 response, or what is wrong with it."""
    try:
        completion = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Failure("malformed", f"the answer is no chat completion: {error}", maybe_billed=True)
    if not completion.choices:
        return Failure("malformed", "the answer has no choices", maybe_billed=True)
    choice = completion.choices[0]
    if choice.finish_reason == "content_filter":
        return Failure(
            "refused", "the provider's content filter stopped the answer", "content_filter"
        )
    usage = completion.usage or _Usage()
    return Reply(
        text=choice.message.content or "",
        reasoning=choice.message.reasoning_content,
        tool_calls=tuple(
            ToolCall(call.id or "", call.function.name, call.function.arguments or "")
            for call in choice.message.tool_calls or ()
        ),
        finish_reason=choice.finish_reason,
        tokens_in=usage.prompt_tokens,
        tokens_out=usage.completion_tokens,
        lane=lane,
        latency_s=latency_s,
    )
