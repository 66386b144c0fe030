"""A request and its answer as limits, faults and personas see them: without any wire format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply

if TYPE_CHECKING:
    from pytest_ultrapar.apis.reply import ToolCall

ANY_OBJECT: dict[str, object] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}
"""The schema where any JSON object will do."""


class OfferedFunction(msgspec.Struct):
    """A function that a request offers, as far as a call of it needs to know.

    Attributes:
        parameters: A JSON schema; None where there is none.
    """

    name: str
    parameters: Any = None


class Request(msgspec.Struct, frozen=True):
    """A well-formed request.

    Attributes:
        api_name: The model or deployment asked for.
        messages: At least one.
        seed: The request's own seed, where it has one.
        stream: Whether the answer is wanted in pieces.
        include_usage: Whether a stream ends with its usage, where an API leaves the choice.
        forced_tool: The function that must be called, where the request says so.
        schema: The JSON schema under which the text must be valid; None: any text will do.
        n: Answers wanted.
        max_tokens: Of each answer, where the request says so.
    """

    api_name: str
    messages: Sequence[ChatMessage]
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    forced_tool: OfferedFunction | None = None
    schema: dict[str, object] | bool | None = None
    n: int = 1
    max_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens of a request and all of its answers."""

    n_in: int
    n_out: int


class Completion(msgspec.Struct, frozen=True):
    """What the model says to a request.

    Attributes:
        name: What makes the ids in the answer.
        replies: The choices.
    """

    name: str
    replies: Sequence[PersonaReply]
    usage: Usage


def arguments_of(call: ToolCall) -> object:
    """What a call holds where an API sends an object; nothing where its text was cut off."""
    try:
        return msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return {}
