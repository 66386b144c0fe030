"""The chat-completions protocol from the server's side: a request read, a completion written.

Streaming is not served yet. It would be a second way to write a completion beside
`encode_completion`; reading and everything before it stay the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.engine.reply import ToolCall
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHARACTERS_PER_TOKEN = 4


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _WireToolCall(msgspec.Struct):
    function: _Function
    id: str = ""
    type: str = "function"


class _Part(msgspec.Struct):
    text: str = ""


class _WireMessage(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[_WireToolCall] | None = None


class _WireRequest(msgspec.Struct):
    messages: list[_WireMessage]
    model: str | None = None
    stream: bool | None = None
    seed: int | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """A well-formed request.

    Attributes:
        api_name: The model or deployment asked for.
        messages: At least one.
        seed: The request's own seed, where it has one.
    """

    api_name: str
    messages: list[ChatMessage]
    seed: int | None


class _Answer(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    tool_calls: list[_WireToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int
    message: _Answer
    finish_reason: str


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class _Completion(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[_Choice]
    usage: _Usage


_decoder = msgspec.json.Decoder(_WireRequest)
_encoder = msgspec.json.Encoder()


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
    if wire.stream:
        return ApiError.bad_request(
            "This server does not stream: leave `stream` out or false", param="stream"
        )
    if not wire.messages:
        return ApiError.bad_request("`messages` is empty; at least one is needed", param="messages")
    api_name = deployment or wire.model
    if not api_name:
        return ApiError.bad_request("`model` is missing", param="model")
    return ChatRequest(api_name, [_message(message) for message in wire.messages], wire.seed)


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


def encode_completion(
    reply: PersonaReply, *, messages: Sequence[ChatMessage], api_name: str, name: str
) -> bytes:
    """The body of the 200 response.

    It holds no time (`created` is 0), so that the same request is answered with the same bytes.

    Args:
        reply: What the persona said.
        messages: The conversation it answers, for the count of tokens.
        api_name: The model as the request named it.
        name: What makes the completion's id.
    """
    calls = [
        _WireToolCall(_Function(call.name, call.arguments), call.call_id)
        for call in reply.tool_calls or ()
    ]
    n_in = _tokens(sum(_characters(message.content, message.tool_calls) for message in messages))
    n_out = _tokens(_characters(reply.content, reply.tool_calls or ()))
    message = _Answer("assistant", reply.content if reply.content or not calls else None, calls)
    if not calls:
        message.tool_calls = None
    return _encoder.encode(
        _Completion(
            f"chatcmpl-{name}",
            "chat.completion",
            0,
            api_name,
            [_Choice(0, message, reply.finish_reason)],
            _Usage(n_in, n_out, n_in + n_out),
        )
    )


def encode_models(api_names: Sequence[str]) -> bytes:
    """The body that lists the models and deployments of a provider."""
    models = [
        {"id": name, "object": "model", "created": 0, "owned_by": "simulated"} for name in api_names
    ]
    return _encoder.encode({"object": "list", "data": models})


def _characters(content: str, calls: Sequence[ToolCall]) -> int:
    return len(content) + sum(len(call.name) + len(call.arguments) for call in calls)


def _tokens(n_characters: int) -> int:
    return -(-n_characters // _CHARACTERS_PER_TOKEN)
