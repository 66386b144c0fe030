"""Requests and answers for limits, faults and personas, independent of any wire format."""

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
"""The schema for any JSON object."""


class OfferedFunction(msgspec.Struct):
    """A function that a request offers, with the fields that a call needs.

    Attributes:
        parameters: A JSON schema, or None.
    """

    name: str
    parameters: Any = None


class Request(msgspec.Struct, frozen=True):
    """A well-formed request.

    Attributes:
        api_name: The requested model or deployment.
        messages: At least one.
        seed: The request's own seed, if any.
        stream: Whether to send the answer in pieces.
        include_usage: Whether to end a stream with the usage, if the API leaves the choice.
        forced_tool: The function that the model must call, if any.
        schema: The JSON schema of the text; None allows any text.
        n: Number of answers.
        max_tokens: Maximum of each answer, if any.
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
    """The answer of the model to a request.

    Attributes:
        name: The common part of the ids in the answer.
        replies: The choices.
    """

    name: str
    replies: Sequence[PersonaReply]
    usage: Usage


def arguments_of(call: ToolCall) -> object:
    """The arguments of a call as an object; empty if their text was cut off."""
    try:
        return msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return {}
