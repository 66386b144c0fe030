"""The chat-completions protocol from the server's side: a request read, a completion written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply

if TYPE_CHECKING:
    from collections.abc import Sequence


_HEARD_CHARACTERS = 40
_EXAMPLES: dict[str, object] = {
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "null": None,
}


class _Property(msgspec.Struct):
    type: str | list[str] = "string"
    enum: list[object] = []


class _Parameters(msgspec.Struct):
    properties: dict[str, _Property] = {}
    required: list[str] = []


class OfferedFunction(msgspec.Struct):
    """A function of the request's `tools`, as far as a call of it needs to know."""

    name: str
    parameters: _Parameters | None = None


class _OfferedTool(msgspec.Struct):
    function: OfferedFunction


class _Named(msgspec.Struct):
    name: str


class ForcedChoice(msgspec.Struct):
    """`tool_choice` where it names a function."""

    function: _Named


_decoder = msgspec.json.Decoder(list[_OfferedTool] | None)


def forced_function(
    choice: str | ForcedChoice, tools: msgspec.Raw
) -> OfferedFunction | ApiError | None:
    """The function that must be called: the named one, or the first where any will do.

    Args:
        choice: The request's `tool_choice`.
        tools: Its `tools`, empty when absent; not decoded yet, since most requests leave the choice
            free, and then nobody needs to know.
    """
    if isinstance(choice, str) and choice != "required":
        return None
    try:
        offered: list[_OfferedTool] = (_decoder.decode(tools) if tools else None) or []
    except msgspec.MsgspecError as error:
        return ApiError.bad_request(f"`tools` cannot be read: {error}", param="tools")
    for tool in offered:
        if isinstance(choice, str) or tool.function.name == choice.function.name:
            return tool.function
    return ApiError.bad_request(
        "`tool_choice` asks for a function that `tools` does not have", param="tool_choice"
    )


def forced_call(
    function: OfferedFunction, messages: Sequence[ChatMessage], call_id: str
) -> PersonaReply:
    """A call of the function with all required arguments: what was heard as text, else nothing."""
    heard = next((m.content for m in reversed(messages) if m.role == "user"), "")
    parameters = function.parameters or _Parameters()
    arguments = {
        name: _example(parameters.properties.get(name, _Property()), heard[:_HEARD_CHARACTERS])
        for name in parameters.required
    }
    text = msgspec.json.encode(arguments).decode()
    return PersonaReply("", [ToolCall(call_id, function.name, text)], "tool_calls")


def _example(described: _Property, heard: str) -> object:
    if described.enum:
        return described.enum[0]
    kinds = [described.type] if isinstance(described.type, str) else described.type
    return _EXAMPLES.get(kinds[0] if kinds else "string", heard)


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


_chat_decoder = msgspec.json.Decoder(_WireRequest)


def decode_request(body: bytes, *, deployment: str | None) -> ChatRequest | ApiError:
    """The request in a body, or what is wrong with it.

    Args:
        body: JSON, perhaps.
        deployment: The api_name that the path holds; it goes before the body's `model`.
    """
    try:
        wire = _chat_decoder.decode(body)
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
