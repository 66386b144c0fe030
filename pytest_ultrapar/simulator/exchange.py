"""Requests and answers as limits, faults and personas use them, independent of any wire format."""

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
"""The schema for requests that allow any JSON object."""


class OfferedFunction(msgspec.Struct):
    """A function that a request offers, with the fields that are necessary to call it.

    Attributes:
        parameters: A JSON schema, or None.
    """

    name: str
    parameters: Any = None


class Request(msgspec.Struct, frozen=True):
    """A well-formed request.

    Attributes:
        api_name: The requested model or deployment.
        messages: One or more messages.
        seed: The request's own seed, or None.
        stream: Whether to send the answer in pieces.
        include_usage: Whether a stream ends with the usage, if clients of the API can choose.
        forced_tool: The function that the model must call, or None.
        schema: The JSON schema that the text must match; None allows any text.
        n: The number of answers.
        max_tokens: The maximum number of tokens in each answer; None means no maximum.
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
    """The tokens of a request and of all its answers."""

    n_in: int
    n_out: int


class Completion(msgspec.Struct, frozen=True):
    """The model's answer to a request.

    Attributes:
        name: The part that all ids in the answer have in common.
        replies: The choices.
    """

    name: str
    replies: Sequence[PersonaReply]
    usage: Usage


def arguments_of(call: ToolCall) -> object:
    """Decode the arguments of a call; the result is empty if their text was cut off."""
    try:
        return msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return {}
