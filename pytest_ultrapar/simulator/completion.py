"""The answer of the model behind a lane: the persona's words, in the requested form."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator.api_error import refuse
from pytest_ultrapar.simulator.exchange import Completion, Usage
from pytest_ultrapar.simulator.persona import PersonaReply, echo, heard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.simulator.exchange import Request
    from pytest_ultrapar.simulator.persona import ChatMessage
    from pytest_ultrapar.simulator.random_draws import Draw
    from pytest_ultrapar.simulator.served_pool import ServedLane

_CHARACTERS = 4
"""How many characters of a text count as one token."""
_ATTACHMENT_TOKENS = 85
"""OpenAI's token count for an image with low detail."""
_NO_CHANCE = random.Random(0)
"""The source of randomness for `echo`, which ignores it: seeding a new source would take 5 us."""


def complete(lane: ServedLane, request: Request, draw: Draw) -> Completion:
    """Return the answer to a request on a lane.

    Args:
        lane: The lane of the request.
        request: The request.
        draw: The random values of the request.

    Raises:
        RefusedError: No value can be made for the request's schema.
    """
    messages = request.messages
    rng = _NO_CHANCE if lane.persona is echo else draw.rng()
    try:
        replies = [_words(lane, request, rng, f"call_{draw.name}") for _ in range(request.n)]
    except ValueError as error:
        refuse(f"Invalid schema: {error}", param="response_format")
    if request.max_tokens is not None:
        replies = [_cut_off(reply, request.max_tokens) for reply in replies]
    return Completion(draw.name, replies, count_usage(replies, messages))


def _words(lane: ServedLane, request: Request, rng: random.Random, call_id: str) -> PersonaReply:
    """The reply before it is cut to `max_tokens`.

    Raises:
        ValueError: No value can be made for the request's schema.
    """
    if (tool := request.forced_tool) is not None:
        arguments = _value(tool.parameters, request) if tool.parameters else "{}"
        return PersonaReply("", [ToolCall(call_id, tool.name, arguments)], "tool_calls")
    if request.schema is not None:
        return PersonaReply(_value(request.schema, request))
    return lane.persona(request.messages, rng, lane.simulation.skill)


def _value(schema: object, request: Request) -> str:
    """A JSON value that matches a schema. Strings quote the start of the last user message."""
    from pytest_ultrapar.simulator.json_schema import smallest  # noqa: PLC0415 - rarely needed

    try:
        return msgspec.json.encode(smallest(schema, heard(request.messages))).decode()
    except OverflowError as error:
        raise ValueError("its numbers are too large") from error


def _cut_off(reply: PersonaReply, max_tokens: int) -> PersonaReply:
    """The reply, cut to `max_tokens` in total: the text comes first, then the calls."""
    if count_usage([reply], ()).n_out <= max_tokens:
        return reply
    left = max_tokens * _CHARACTERS
    kept = reply.content[:left]
    left -= len(kept)
    calls = []
    for call in reply.tool_calls:
        left -= len(call.name)
        if left > 0:
            calls.append(ToolCall(call.call_id, call.name, call.arguments[:left]))
            left -= len(call.arguments)
    return PersonaReply(kept, calls, "length")


def count_usage(replies: Sequence[PersonaReply], messages: Sequence[ChatMessage]) -> Usage:
    """Count the tokens of a request and of all its answers, rounded up."""
    n_attachments = sum(len(message.attachments) for message in messages)
    n_in = -(-sum(map(_n_characters, messages)) // _CHARACTERS) + _ATTACHMENT_TOKENS * n_attachments
    return Usage(n_in, sum(-(-_n_characters(reply) // _CHARACTERS) for reply in replies))


def _n_characters(said: ChatMessage | PersonaReply) -> int:
    n = len(said.content)
    if said.tool_calls:
        n += sum(len(call.name) + len(call.arguments) for call in said.tool_calls)
    return n
