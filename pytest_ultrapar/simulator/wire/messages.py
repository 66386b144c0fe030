"""Anthropic's Messages API.

Source: Anthropic's API reference and the types of its official Python client.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from pytest_ultrapar.apis.gateway_errors import anthropic_error
from pytest_ultrapar.simulator.answer import Whole
from pytest_ultrapar.simulator.api_error import refuse
from pytest_ultrapar.simulator.exchange import OfferedFunction, Request, arguments_of
from pytest_ultrapar.simulator.stream import ARGUMENT_PIECES, TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire.conversation import chosen, messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.api_error import ApiError
    from pytest_ultrapar.simulator.exchange import Completion
    from pytest_ultrapar.simulator.persona import PersonaReply
    from pytest_ultrapar.simulator.stream import Piece


class _Turn(msgspec.Struct):
    role: Literal["user", "assistant"]
    content: str | list[dict[str, Any]]


class _Tool(msgspec.Struct):
    name: str
    input_schema: Any = None


class _Choice(msgspec.Struct):
    type: str
    name: str = ""


class _Format(msgspec.Struct):
    type: str
    schema: dict[str, object] | None = None


class _OutputConfig(msgspec.Struct):
    format: _Format | None = None


class _WireRequest(msgspec.Struct):
    model: str
    messages: list[_Turn]
    max_tokens: Annotated[int, msgspec.Meta(ge=1)]
    stream: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None


_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.encode
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class Messages:
    """Implements `wire.resource.Resource` for this API."""

    key_header: ClassVar[bytes] = b"x-api-key"
    overloaded: ClassVar[int] = 529

    def refusal(self, error: ApiError) -> Whole:
        """Write the document `{"type": "error", "error": {"type", "message"}}`."""
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if error.retry_after_s is not None:
            headers = ((b"retry-after", b"%d" % math.ceil(error.retry_after_s)),)
        return Whole(anthropic_error(error.status, error.message), error.status, headers)

    def read(self, body: bytes, *, name: str | None, scope: Scope) -> Request:
        """Read a request, which must contain a message; the system prompt comes first."""
        if not any(name == b"anthropic-version" for name, _ in scope["headers"]):
            refuse("anthropic-version: header is required")
        fields = _decode(body)
        wire = msgspec.convert(fields, _WireRequest)
        if not wire.messages:
            refuse("messages: at least one message is required")
        wanted = wire.output_format
        if wire.output_config is not None and wire.output_config.format is not None:
            wanted = wire.output_config.format
        if wanted is not None and (wanted.type != "json_schema" or wanted.schema is None):
            refuse("output_config.format: `type` must be `json_schema`, and `schema` is required")
        return Request(
            wire.model,
            messages_of(fields),
            stream=bool(wire.stream),
            forced_tool=_forced_tool(wire),
            schema=None if wanted is None else wanted.schema,
            max_tokens=wire.max_tokens,
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """Write a message."""
        (reply,) = completion.replies
        usage = _usage(completion.usage.n_in, completion.usage.n_out)
        return _encode(_message(request, completion, list(_blocks(reply)), reply, usage))

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Write the events: the message without content, each block in pieces, and the end."""
        (reply,) = completion.replies
        usage = completion.usage
        begun = _message(request, completion, [], None, _usage(usage.n_in, 1))
        events = [_event("message_start", message=begun)]
        for index, block in enumerate(_blocks(reply)):
            is_call = block["type"] == "tool_use"
            empty = {**block, "input": {}} if is_call else {**block, "text": ""}
            events.append(_event("content_block_start", index=index, content_block=empty))
            if not index:
                # Sent together with the event before it, since it has no due time.
                events[-1] += _event("ping")
            if is_call:
                text = _encode(block["input"]).decode()
                deltas = [
                    {"type": "input_json_delta", "partial_json": piece}
                    for piece in cut(text, ARGUMENT_PIECES)
                ]
            else:
                deltas = [
                    {"type": "text_delta", "text": piece}
                    for piece in cut(str(block["text"]), TEXT_PIECES)
                ]
            events += [_event("content_block_delta", index=index, delta=one) for one in deltas]
            events.append(_event("content_block_stop", index=index))
        ended = {"output_tokens": usage.n_out}
        events.append(_event("message_delta", delta=_ending(reply), usage=ended))
        events.append(_event("message_stop"))
        return spread(events)


RESOURCE = Messages()


def _forced_tool(wire: _WireRequest) -> OfferedFunction | None:
    choice = wire.tool_choice
    if choice is None or choice.type not in {"any", "tool"}:
        return None
    offered = [OfferedFunction(tool.name, tool.input_schema) for tool in wire.tools or ()]
    return chosen(offered, None if choice.type == "any" else choice.name)


def _message(
    request: Request,
    completion: Completion,
    blocks: list[dict[str, object]],
    reply: PersonaReply | None,
    usage: dict[str, object],
) -> dict[str, object]:
    return {
        "id": f"msg_{completion.name}",
        "type": "message",
        "role": "assistant",
        "model": request.api_name,
        "content": blocks,
        **(_NOT_ENDED if reply is None else _ending(reply)),
        "usage": usage,
    }


_NOT_ENDED: dict[str, object] = {"stop_reason": None, "stop_sequence": None}


def _ending(reply: PersonaReply) -> dict[str, object]:
    return {"stop_reason": _STOP_REASONS[reply.finish_reason], "stop_sequence": None}


def _usage(n_in: int, n_out: int) -> dict[str, object]:
    return {
        "input_tokens": n_in,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": n_out,
    }


def _blocks(reply: PersonaReply) -> Iterator[dict[str, object]]:
    if reply.content or not reply.tool_calls:
        yield {"type": "text", "text": reply.content}
    for call in reply.tool_calls:
        call_id = call.call_id.replace("call_", "toolu_", 1)
        arguments = arguments_of(call)
        yield {"type": "tool_use", "id": call_id, "name": call.name, "input": arguments}


def _event(name: str, **fields: object) -> bytes:
    return as_event(_encode({"type": name, **fields}), name)
