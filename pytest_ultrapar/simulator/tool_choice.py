"""A request that forces a function call gets one, whoever answers: as the real APIs do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.engine.reply import ToolCall
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
