"""The simulated provider as a raw ASGI application: who asks, may they, what is answered, when."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.asgi import (
    ON_DEPARTURE,
    Receive,
    Scope,
    Send,
    read_body,
    respond,
)
from pytest_ultrapar.simulator.chat import (
    ChatRequest,
    decode_request,
    encode_completion,
    encode_models,
)
from pytest_ultrapar.simulator.draw import Draw
from pytest_ultrapar.simulator.flight import Admitted, Flight, Log
from pytest_ultrapar.simulator.log_line import encode_names
from pytest_ultrapar.simulator.targets import Target, presented_key, targets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.clock import Clock
    from pytest_ultrapar.simulator.refusals import Interference
    from pytest_ultrapar.simulator.served import ServedLane, ServedProvider

LARGEST_BODY_BYTES = 1024 * 1024
_NO_NAMES = encode_names()


class Simulator:
    """Answers chat completions for the providers of a pool.

    A request arrives when its last byte is here; it is judged and logged in that same moment. So
    the log's arrivals and ends, swept in order, give exactly the seats that were judged.
    """

    def __init__(
        self,
        providers: Iterable[ServedProvider],
        *,
        interference: Interference,
        log: Log,
        clock: Clock,
    ) -> None:
        self._targets = targets(providers)
        self._interference = interference
        self._log = log
        self._clock = clock
        self._n_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; called by the server, in a task of its own."""
        body = await read_body(receive, limit_bytes=LARGEST_BODY_BYTES)
        if body is None:
            return
        now_s = self._clock.now_s()
        target = self._targets.get(scope["path"])
        if target is not None and target.method == "GET":
            await _list_models(scope, target, send)
            return
        self._n_requests += 1
        request_id = self._n_requests
        names, judged = self._judge(scope, target, body, now_s)
        self._log.write(now_s, "arrival", request_id, names)
        if isinstance(judged, ApiError):
            self._log.write(now_s, "refused", request_id, names, judged.status)
            await _refuse(send, judged)
            return
        flight = Flight(judged, request_id=request_id, send=send, log=self._log, clock=self._clock)
        scope[ON_DEPARTURE] = flight.leave
        await flight.run(receive)

    def _judge(
        self, scope: Scope, target: Target | None, body: bytes, now_s: float
    ) -> tuple[bytes, Admitted | ApiError]:
        """The names to log, and what the request gets: a seat and an answer, or an error now."""
        if target is None:
            return _NO_NAMES, ApiError(404, f"Unknown path {scope['path']!r}", "unknown_url")
        provider = target.provider
        if scope["method"] != target.method:
            return provider.names, _method_not_allowed(target)
        key = presented_key(scope, provider)
        if key is None:
            return provider.names, _unknown_token()
        key_names = provider.key_names[key]
        if len(body) > LARGEST_BODY_BYTES:
            message = f"The body is larger than {LARGEST_BODY_BYTES} bytes"
            return key_names, ApiError.of_status(413, message)
        request = decode_request(body, deployment=target.deployment)
        if isinstance(request, ApiError):
            return key_names, request
        lane = provider.lanes.get((key, request.api_name))
        if lane is None:
            message = f"The model {request.api_name!r} does not exist"
            return key_names, ApiError.of_status(404, message)
        return lane.names, self._admit(lane, request, now_s)

    def _admit(self, lane: ServedLane, request: ChatRequest, now_s: float) -> Admitted | ApiError:
        refusal = self._interference.decide(lane, now_s)
        if refusal is not None:
            return refusal
        exceeded = lane.path.admit(now_s)
        if exceeded is not None:
            return ApiError.over_limit(exceeded)
        try:
            return _compose(lane, request, now_s)
        except Exception:  # noqa: BLE001 - one broken persona must not take the server along
            lane.path.free()
            traceback.print_exc(file=sys.stderr)
            return ApiError.of_status(500, "The persona failed; the server's stderr says how")


def _compose(lane: ServedLane, request: ChatRequest, now_s: float) -> Admitted:
    draw = Draw(request.messages, model=lane.model, seed=lane.seed, request_seed=request.seed)
    reply = lane.persona.reply(request.messages, draw.rng(), lane.simulation.skill)
    body = encode_completion(
        reply, messages=request.messages, api_name=request.api_name, name=draw.name
    )
    return Admitted(lane, body, now_s + draw.latency_s(lane.simulation.latency))


async def _list_models(scope: Scope, target: Target, send: Send) -> None:
    if scope["method"] != target.method:
        await _refuse(send, _method_not_allowed(target))
    elif presented_key(scope, target.provider) is None:
        await _refuse(send, _unknown_token())
    else:
        await respond(send, 200, encode_models(target.provider.api_names), [])


async def _refuse(send: Send, error: ApiError) -> None:
    await respond(send, error.status, error.body(), error.headers())


def _method_not_allowed(target: Target) -> ApiError:
    return ApiError(405, f"Only {target.method} is allowed here", "method_not_allowed")


def _unknown_token() -> ApiError:
    # Neither the token nor a part of it: what was sent may be a real key, sent here by mistake.
    return ApiError.of_status(401, "Incorrect or no API key provided")
