"""The chat-completions protocol from the server's side: a request read."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.engine.reply import ToolCall
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.tool_choice import ForcedChoice, OfferedFunction, forced_function


class Function(msgspec.Struct):
    """A function's name and what it is called with, as JSON in a string."""

    name: str
    arguments: str = ""


class WireToolCall(msgspec.Struct):
    """A native function call, in requests and answers alike."""

    function: Function
    id: str = ""
    type: str = "function"


class _Part(msgspec.Struct):
    text: str = ""


class _WireMessage(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[WireToolCall] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _WireRequest(msgspec.Struct):
    messages: list[_WireMessage]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    seed: int | None = None
    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: str | ForcedChoice | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """A well-formed request.

    Attributes:
        api_name: The model or deployment asked for.
        messages: At least one.
        seed: The request's own seed, where it has one.
        stream: Whether the answer is wanted in pieces.
        include_usage: Whether a streamed answer ends with its usage.
        forced_tool: The function that must be called, where the request says so.
    """

    api_name: str
    messages: list[ChatMessage]
    seed: int | None
    stream: bool = False
    include_usage: bool = False
    forced_tool: OfferedFunction | None = None


_decoder = msgspec.json.Decoder(_WireRequest)


def decode_request(body: bytes, *, deployment: str | None) -> ChatRequest | ApiError:
    """The request in a body, or what is wrong with it.

    Args:
        body: JSON, perhaps.
        deployment: The api_name that the path holds; it goes before the body's `model`.
    """
    try:
        wire = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return ApiError.bad_request(f"The body is no chat-completions request: {error}")
    if not wire.messages:
        return ApiError.bad_request("`messages` is empty; at least one is needed", param="messages")
    api_name = deployment or wire.model
    if not api_name:
        return ApiError.bad_request("`model` is missing", param="model")
    forced = None if wire.tool_choice is None else forced_function(wire.tool_choice, wire.tools)
    if isinstance(forced, ApiError):
        return forced
    return ChatRequest(
        api_name,
        [_message(message) for message in wire.messages],
        wire.seed,
        bool(wire.stream),
        wire.stream_options is not None and bool(wire.stream_options.include_usage),
        forced,
    )


def _message(wire: _WireMessage) -> ChatMessage:
    content = wire.content
    if not isinstance(content, str):
        content = "".join(part.text for part in content or ())
    calls = wire.tool_calls
    return ChatMessage(
        wire.role,
        content,
        wire.name,
        wire.tool_call_id,
        tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in calls)
        if calls
        else (),
    )
