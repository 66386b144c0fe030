"""The chat-completions protocol from the server's side: a completion written whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.simulator.chat import Function, WireToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.engine.reply import ToolCall
    from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply

_CHARACTERS_PER_TOKEN = 4


class _Answer(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    tool_calls: list[WireToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int
    message: _Answer
    finish_reason: str


class Usage(msgspec.Struct):
    """Tokens of a prompt and its answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class _Completion(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[_Choice]
    usage: Usage


_encoder = msgspec.json.Encoder()


def count_usage(reply: PersonaReply, messages: Sequence[ChatMessage]) -> Usage:
    """The tokens of a conversation and its answer: a token is 4 characters, begun ones count."""
    n_in = _tokens(sum(_characters(message.content, message.tool_calls) for message in messages))
    n_out = _tokens(_characters(reply.content, reply.tool_calls or ()))
    return Usage(n_in, n_out, n_in + n_out)


def encode_completion(reply: PersonaReply, *, usage: Usage, api_name: str, name: str) -> bytes:
    """The body of the 200 response.

    It holds no time (`created` is 0), so that the same request is answered with the same bytes.

    Args:
        reply: What the persona said.
        usage: Its tokens.
        api_name: The model as the request named it.
        name: What makes the completion's id.
    """
    calls = [
        WireToolCall(Function(call.name, call.arguments), call.call_id)
        for call in reply.tool_calls or ()
    ]
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
            usage,
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
