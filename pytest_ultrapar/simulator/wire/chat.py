"""Chat completions as OpenAI and its likes, Mistral among them, speak them.

Source: the types of the official clients `openai` and `mistralai`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.apis.sanitise import UNREADABLE
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import ANY_OBJECT, OfferedFunction, Request
from pytest_ultrapar.simulator.persona import ChatMessage, digests
from pytest_ultrapar.simulator.stream import ARGUMENT_PIECES, TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire import openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.exchange import Completion, Usage
    from pytest_ultrapar.simulator.persona import PersonaReply
    from pytest_ultrapar.simulator.stream import Piece


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Part(msgspec.Struct):
    """A part of a message; what is neither text nor a known attachment says nothing."""

    text: str = ""
    image_url: msgspec.Raw = msgspec.Raw()
    input_audio: msgspec.Raw = msgspec.Raw()
    file: msgspec.Raw = msgspec.Raw()


class _WireMessage(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Choice(msgspec.Struct):
    """`tool_choice` where it names a function."""

    function: _Function


class _OfferedTool(msgspec.Struct):
    function: OfferedFunction


class _SchemaFormat(msgspec.Struct):
    schema: dict[str, object] | None = None


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _SchemaFormat | None = None


class _WireRequest(msgspec.Struct):
    messages: list[_WireMessage]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    seed: int | None = None
    random_seed: int | None = None
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: str | _Choice | None = None
    response_format: _ResponseFormat | None = None
    n: openai.Count | None = None
    max_tokens: openai.MaxTokens | None = None
    max_completion_tokens: openai.MaxTokens | None = None
    logprobs: bool | None = None


_decoder = msgspec.json.Decoder(_WireRequest)
_tools_decoder = msgspec.json.Decoder(list[_OfferedTool] | None)
_ANY_TOOL = {"required", "any"}  # OpenAI's word and Mistral's


_encode = msgspec.json.Encoder().encode


class Chat(openai.OpenAi):
    """See `wire.resource.Resource`."""

    def read(
        self, body: bytes, *, name: str | None = None, scope: Scope | None = None
    ) -> Request | ApiError:
        """A request with at least one message."""
        del scope
        try:
            wire = _decoder.decode(body)
        except UNREADABLE as error:
            return ApiError.bad_request(f"The body is no chat-completions request: {error}")
        if not wire.messages:
            message = "`messages` is empty; at least one is needed"
            return ApiError.bad_request(message, param="messages")
        api_name = name or wire.model
        if not api_name:
            return ApiError.bad_request("`model` is missing", param="model")
        if wire.logprobs:
            return ApiError.unsupported("logprobs")
        forced = None if wire.tool_choice is None else _forced_tool(wire.tool_choice, wire.tools)
        if isinstance(forced, ApiError):
            return forced
        schema = None if wire.response_format is None else _schema(wire.response_format)
        if isinstance(schema, ApiError):
            return schema
        bound = wire.max_completion_tokens
        return Request(
            api_name,
            [_message(message) for message in wire.messages],
            wire.random_seed if wire.seed is None else wire.seed,
            bool(wire.stream),
            wire.stream_options is not None and bool(wire.stream_options.include_usage),
            forced,
            schema,
            wire.n or 1,
            wire.max_tokens if bound is None else bound,
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """A completion."""
        choices = [
            {"index": index, "message": _answer(reply), "finish_reason": reply.finish_reason}
            for index, reply in enumerate(completion.replies)
        ]
        return _encode(
            {
                "id": f"chatcmpl-{completion.name}",
                "object": "chat.completion",
                "created": 0,
                "model": request.api_name,
                "choices": choices,
                "usage": _usage(completion.usage),
            }
        )

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Its chunks, the choices one after the other; usage in one without any choice."""
        head = {
            "id": f"chatcmpl-{completion.name}",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": request.api_name,
        }
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


def _forced_tool(choice: str | _Choice, tools: msgspec.Raw) -> OfferedFunction | ApiError | None:
    """The function that must be called: the named one, or the first where any will do.

    Args:
        choice: The request's `tool_choice`.
        tools: Its `tools`, empty when absent; not decoded yet, since most requests leave the choice
            free, and then nobody needs to know.
    """
    if isinstance(choice, str) and choice not in _ANY_TOOL:
        return None
    try:
        offered: list[_OfferedTool] = (_tools_decoder.decode(tools) if tools else None) or []
    except UNREADABLE as error:
        return ApiError.bad_request(f"`tools` cannot be read: {error}", param="tools")
    named = None if isinstance(choice, str) else choice.function.name
    return openai.chosen([tool.function for tool in offered], named)


def _schema(wanted: _ResponseFormat) -> dict[str, object] | ApiError | None:
    if wanted.type != "json_schema":
        return ANY_OBJECT if wanted.type == "json_object" else None
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        message = "`response_format` of type `json_schema` needs `json_schema.schema`"
        return ApiError.bad_request(message, param="response_format")
    return wanted.json_schema.schema


def _message(wire: _WireMessage) -> ChatMessage:
    content = wire.content
    attachments: tuple[str, ...] = ()
    if not isinstance(content, str):
        parts = content or ()
        content = "".join(part.text for part in parts)
        attachments = digests(raw for p in parts for raw in (p.image_url, p.input_audio, p.file))
    calls = wire.tool_calls
    return ChatMessage(
        wire.role,
        content,
        wire.name,
        wire.tool_call_id,
        tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in calls)
        if calls
        else (),
        attachments,
    )


def _answer(reply: PersonaReply) -> dict[str, object]:
    if not reply.tool_calls:
        return {"role": "assistant", "content": reply.content}
    calls = [
        {
            "function": {"name": call.name, "arguments": call.arguments},
            "id": call.call_id,
            "type": "function",
        }
        for call in reply.tool_calls
    ]
    return {"role": "assistant", "content": reply.content or None, "tool_calls": calls}


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.n_in,
        "completion_tokens": usage.n_out,
        "total_tokens": usage.n_in + usage.n_out,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _deltas(reply: PersonaReply) -> Iterator[dict[str, object]]:
    """What is added piece by piece: who speaks, the text, each call's head and its arguments."""
    calls = reply.tool_calls or ()
    if calls and not reply.content:
        # A message of calls alone has no text; the role comes with the first call.
        yield {"role": "assistant", "tool_calls": [_call_head(0, calls[0])]}
    else:
        yield {"role": "assistant", "content": ""}
        for text in cut(reply.content, TEXT_PIECES):
            yield {"content": text}
    for index, call in enumerate(calls):
        if index or reply.content:
            yield {"tool_calls": [_call_head(index, call)]}
        for text in cut(call.arguments, ARGUMENT_PIECES):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _call_head(index: int, call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": ""}
    return {"index": index, "function": function, "id": call.call_id, "type": "function"}
