"""What a lane answers to a request, and after how long: persona, chance and faults together."""

from __future__ import annotations

import random
import sys
import traceback
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.simulator.answer import Answer, Pieces, Whole
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.completion import count_usage, encode_completion
from pytest_ultrapar.simulator.draw import Draw
from pytest_ultrapar.simulator.faults.disturbed import disturbed_answer, disturbed_reply
from pytest_ultrapar.simulator.stream import STREAM_HEADERS, stream_pieces
from pytest_ultrapar.simulator.tool_choice import forced_call

if TYPE_CHECKING:
    from pytest_ultrapar.simulator.chat import ChatRequest
    from pytest_ultrapar.simulator.faults.script import Effect
    from pytest_ultrapar.simulator.served import ServedLane

_NO_CHANCE = random.Random(0)
"""For personas that draw nothing."""


class Composed(msgspec.Struct, frozen=True):
    """An answer before it is admitted.

    Attributes:
        latency_s: How long it takes from the moment when the request is at work.
        n_tokens: Of prompt and completion.
    """

    answer: Answer
    latency_s: float
    n_tokens: int


def draw_of(lane: ServedLane, request: ChatRequest) -> Draw:
    """The chance of a request on any lane of its model."""
    return Draw(request.messages, model=lane.model, seed=lane.seed, request_seed=request.seed)


def compose(lane: ServedLane, request: ChatRequest, effect: Effect | None) -> Composed | ApiError:
    """What the lane's persona answers, as the request wants it sent; 500 if the persona fails.

    Args:
        lane: Who answers.
        request: What is asked.
        effect: What a fault makes of it.
    """
    try:
        return _composed(lane, request, effect)
    except Exception:  # noqa: BLE001 - one broken persona must not take the server along
        traceback.print_exc(file=sys.stderr)
        return ApiError.of_status(500, "The persona failed; the server's stderr says how")


def _composed(lane: ServedLane, request: ChatRequest, effect: Effect | None) -> Composed:
    draw = draw_of(lane, request)
    messages, name = request.messages, draw.name
    if request.forced_tool is not None:
        reply = forced_call(request.forced_tool, messages, f"call_{name}")
    else:
        rng = draw.rng() if lane.persona.draws else _NO_CHANCE
        reply = lane.persona.reply(messages, rng, lane.simulation.skill)
    if effect is not None:
        reply = disturbed_reply(reply, effect)
    usage = count_usage(reply, messages)
    answer: Answer
    if request.stream:
        told = usage if request.include_usage else None
        pieces = stream_pieces(reply, usage=told, api_name=request.api_name, name=name)
        answer = Pieces(200, STREAM_HEADERS, pieces)
    else:
        body = encode_completion(reply, usage=usage, api_name=request.api_name, name=name)
        answer = Whole(body)
    latency_s = draw.latency_s(lane.simulation.latency)
    if effect is not None:
        answer, latency_s = disturbed_answer(answer, latency_s, effect)
    return Composed(answer, latency_s, usage.total_tokens)
