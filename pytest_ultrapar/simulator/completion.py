"""What the model behind a lane says to a request: the persona's words, in the form asked for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator import tokens
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import Completion
from pytest_ultrapar.simulator.persona import PersonaReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.simulator.draw import Draw
    from pytest_ultrapar.simulator.exchange import OfferedFunction, Request
    from pytest_ultrapar.simulator.persona import ChatMessage
    from pytest_ultrapar.simulator.served import ServedLane

_HEARD_CHARACTERS = 40
_NO_CHANCE = random.Random(0)
"""For personas that draw nothing."""


def complete(lane: ServedLane, request: Request, draw: Draw) -> Completion | ApiError:
    """The answer of a lane, or why the request has none.

    Args:
        lane: Who answers.
        request: What is asked.
        draw: The request's chance.
    """
    messages = request.messages
    replies: Sequence[PersonaReply]
    if request.is_plain:
        rng = draw.rng() if lane.persona.draws else _NO_CHANCE
        replies = (lane.persona.reply(messages, rng, lane.simulation.skill),)
    else:
        rng = draw.rng()
        try:
            replies = [_as_asked(lane, request, rng, draw.name) for _ in range(request.n)]
        except ValueError as error:
            return ApiError.bad_request(f"Invalid schema: {error}", param="response_format")
    usage = tokens.count_usage(replies, messages)
    return Completion(draw.name, replies, usage)


def _as_asked(lane: ServedLane, request: Request, rng: random.Random, name: str) -> PersonaReply:
    """One choice.

    Raises:
        ValueError: Nothing is valid under the request's schema, or it is not understood.
    """
    reply = _words(lane, request, rng, f"call_{name}")
    return _cut_off(_stopped(reply, request.stop), request.max_tokens)


def _words(lane: ServedLane, request: Request, rng: random.Random, call_id: str) -> PersonaReply:
    messages = request.messages
    if request.forced_tool is not None:
        return forced_call(request.forced_tool, messages, call_id)
    if request.schema is None:
        return lane.persona.reply(messages, rng, lane.simulation.skill)
    from pytest_ultrapar.simulator.json_schema import value_under  # noqa: PLC0415 - where asked for

    value = value_under(request.schema, heard(messages), rng.randrange)
    return PersonaReply(_as_json(value))


def heard(messages: Sequence[ChatMessage]) -> str:
    """The beginning of what the user said last."""
    last = next((one.content for one in reversed(messages) if one.role == "user"), "")
    return last[:_HEARD_CHARACTERS]


def forced_call(
    function: OfferedFunction, messages: Sequence[ChatMessage], call_id: str
) -> PersonaReply:
    """A call of the function with all required arguments, the plainest that its schema allows.

    Raises:
        ValueError: There are none, or the schema is not understood.
    """
    from pytest_ultrapar.simulator.json_schema import value_under  # noqa: PLC0415 - where asked for

    schema: object = msgspec.json.decode(function.parameters) if function.parameters else None
    arguments: object = {}
    if schema:
        arguments = value_under(schema, heard(messages), lambda _: 0)
    return PersonaReply("", [ToolCall(call_id, function.name, _as_json(arguments))], "tool_calls")


def _as_json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except OverflowError as error:
        msg = "its numbers are too large"
        raise ValueError(msg) from error


def _stopped(reply: PersonaReply, stop: Sequence[str]) -> PersonaReply:
    """The reply up to the first of the texts that are to stop it."""
    found = [(at, text) for text in stop if (at := reply.content.find(text)) >= 0]
    if not found:
        return reply
    at, text = min(found)
    return PersonaReply(reply.content[:at], None, "stop", text)


def _cut_off(reply: PersonaReply, max_tokens: int | None) -> PersonaReply:
    """The reply as far as its bound allows: its text, then the arguments of its calls."""
    if max_tokens is None or tokens.count_usage([reply], ()).n_out <= max_tokens:
        return reply
    left = max_tokens * tokens.CHARACTERS
    kept = reply.content[:left]
    left -= len(kept)
    calls = []
    for call in reply.tool_calls or ():
        left -= len(call.name)
        if left > 0:
            calls.append(ToolCall(call.call_id, call.name, call.arguments[:left]))
            left -= len(call.arguments)
    return PersonaReply(kept, calls or None, "length")
