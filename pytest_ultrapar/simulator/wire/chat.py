"""Chat completions, as in the APIs of OpenAI and compatible providers such as Mistral.

Source: the types of the official clients `openai` and `mistralai`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.simulator.api_error import refuse, refuse_field
from pytest_ultrapar.simulator.exchange import ANY_OBJECT, OfferedFunction, Request
from pytest_ultrapar.simulator.stream import ARGUMENT_PIECES, TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire import openai
from pytest_ultrapar.simulator.wire.conversation import Function, Said, chosen, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.apis.reply import ToolCall
    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.exchange import Completion, Usage
    from pytest_ultrapar.simulator.persona import PersonaReply
    from pytest_ultrapar.simulator.stream import Piece


class _Message(Said):
    content: str | list[Any] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Choice(msgspec.Struct):
    """A `tool_choice` that names a function."""

    function: Function


class _OfferedTool(msgspec.Struct):
    function: OfferedFunction | None = None


class _SchemaFormat(msgspec.Struct):
    schema: dict[str, object] | None = None


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _SchemaFormat | None = None


class _WireRequest(msgspec.Struct):
    messages: list[_Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    seed: int | None = None
    random_seed: int | None = None
    tool_choice: str | _Choice | None = None
    response_format: _ResponseFormat | None = None
    n: openai.Count | None = None
    max_tokens: openai.MaxTokens | None = None
    max_completion_tokens: openai.MaxTokens | None = None
    logprobs: bool | None = None


class _Offering(msgspec.Struct):
    """The part of a request that is decoded only if it forces a function, which is rare."""

    tools: list[_OfferedTool] | None = None


_decoder = msgspec.json.Decoder(_WireRequest)
_offering = msgspec.json.Decoder(_Offering)
_ANY_TOOL = {"required", "any"}  # OpenAI's word and Mistral's


_encode = msgspec.json.Encoder().encode


class Chat(openai.OpenAi):
    """Implements `wire.resource.Resource` for this API."""

    def read(self, body: bytes, *, name: str | None = None, scope: Scope | None = None) -> Request:
        """Read a request, which must contain a message."""
        wire = _decoder.decode(body)
        if not wire.messages:
            refuse("`messages` is empty; at least one message is needed", param="messages")
        api_name = name or wire.model
        if not api_name:
            refuse("`model` is missing", param="model")
        if wire.logprobs:
            refuse_field("logprobs")
        bound = wire.max_completion_tokens
        return Request(
            api_name,
            [message_of(message) for message in wire.messages],
            wire.random_seed if wire.seed is None else wire.seed,
            bool(wire.stream),
            wire.stream_options is not None and bool(wire.stream_options.include_usage),
            _forced_tool(wire.tool_choice, body),
            None if wire.response_format is None else _schema(wire.response_format),
            wire.n or 1,
            wire.max_tokens if bound is None else bound,
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """Write a completion."""
        choices = [
            {"index": index, "message": _answer(reply), "finish_reason": reply.finish_reason}
            for index, reply in enumerate(completion.replies)
        ]
        head = _head("chat.completion", request, completion)
        return _encode({**head, "choices": choices, "usage": _usage(completion.usage)})

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Write the chunks, one choice after another. The usage has its own chunk."""
        head = _head("chat.completion.chunk", request, completion)
        none = {"usage": None} if request.include_usage else {}
        events = []
        for index, reply in enumerate(completion.replies):
            for delta in (*_deltas(reply), {}):
                reason = None if delta else reply.finish_reason
                choice = {"index": index, "delta": delta, "finish_reason": reason}
                events.append(as_event(_encode({**head, "choices": [choice], **none})))
        if request.include_usage:
            usage = _usage(completion.usage)
            events.append(as_event(_encode({**head, "choices": [], "usage": usage})))
        events[-1] += as_event(b"[DONE]")
        return spread(events)


RESOURCE = Chat()


def _forced_tool(choice: str | _Choice | None, body: bytes) -> OfferedFunction | None:
    if choice is None or (isinstance(choice, str) and choice not in _ANY_TOOL):
        return None
    offered = [
        tool.function for tool in _offering.decode(body).tools or () if tool.function is not None
    ]
    return chosen(offered, None if isinstance(choice, str) else choice.function.name)


def _schema(wanted: _ResponseFormat) -> dict[str, object] | None:
    if wanted.type != "json_schema":
        return ANY_OBJECT if wanted.type == "json_object" else None
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        message = "`response_format` of type `json_schema` needs `json_schema.schema`"
        refuse(message, param="response_format")
    return wanted.json_schema.schema


def _head(kind: str, request: Request, completion: Completion) -> dict[str, object]:
    name = f"chatcmpl-{completion.name}"
    return {"id": name, "object": kind, "created": 0, "model": request.api_name}


def _answer(reply: PersonaReply) -> dict[str, object]:
    if not reply.tool_calls:
        return {"role": "assistant", "content": reply.content}
    calls = [_call(call, call.arguments) for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.content or None, "tool_calls": calls}


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.n_in,
        "completion_tokens": usage.n_out,
        "total_tokens": usage.n_in + usage.n_out,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _deltas(reply: PersonaReply) -> Iterator[dict[str, object]]:
    """Yield the deltas of a message: role, text, and the head and arguments of each call."""
    calls = reply.tool_calls
    if calls and not reply.content:
        # A message that contains only calls has no text, and its role comes with the first call.
        yield {"role": "assistant", "tool_calls": [{"index": 0, **_call(calls[0], "")}]}
    else:
        yield {"role": "assistant", "content": ""}
        for text in cut(reply.content, TEXT_PIECES):
            yield {"content": text}
    for index, call in enumerate(calls):
        if index or reply.content:
            yield {"tool_calls": [{"index": index, **_call(call, "")}]}
        for text in cut(call.arguments, ARGUMENT_PIECES):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _call(call: ToolCall, arguments: str) -> dict[str, object]:
    function = {"name": call.name, "arguments": arguments}
    return {"function": function, "id": call.call_id, "type": "function"}
