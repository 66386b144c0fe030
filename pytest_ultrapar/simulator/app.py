"""The simulated provider as a raw ASGI application: who asks, may they, what is answered, when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.answer import Whole, with_headers
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.asgi import (
    ON_DEPARTURE,
    Receive,
    Scope,
    Send,
    read_body,
    respond,
)
from pytest_ultrapar.simulator.chat import ChatRequest, decode_request
from pytest_ultrapar.simulator.completion import encode_models
from pytest_ultrapar.simulator.composing import Composed, compose, draw_of
from pytest_ultrapar.simulator.faults.disturbed import error_answer
from pytest_ultrapar.simulator.faults.script import Error
from pytest_ultrapar.simulator.flight import Admitted, Flight, Log
from pytest_ultrapar.simulator.log_line import encode_names, with_fault
from pytest_ultrapar.simulator.metrics import METRICS_HEADERS, encode_metrics
from pytest_ultrapar.simulator.targets import Target, presented_key, targets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.clock import Clock
    from pytest_ultrapar.simulator.faults.book import FaultBook
    from pytest_ultrapar.simulator.faults.script import Effect
    from pytest_ultrapar.simulator.faults.timeline import Timeline
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
        log: Log,
        clock: Clock,
        timeline: Timeline,
        faults: FaultBook | None = None,
    ) -> None:
        self._targets = targets(providers)
        self._log = log
        self._clock = clock
        self._timeline = timeline
        self._faults = faults
        self._n_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; called by the server, in a task of its own."""
        body = await read_body(receive, limit_bytes=LARGEST_BODY_BYTES)
        if body is None:
            return
        now_s = self._clock.now_s()
        target = self._targets.get(scope["path"])
        if target is not None and target.method == "GET":
            await _send_whole(send, _looked_up(scope, target))
            return
        self._timeline.begin(now_s)
        self._n_requests += 1
        request_id = self._n_requests
        names, judged = self._judge(scope, target, body, now_s)
        self._log.write(now_s, "arrival", request_id, names)
        if isinstance(judged, Whole):
            self._log.write(now_s, "refused", request_id, names, judged.status)
            await _send_whole(send, judged)
            return
        flight = Flight(
            judged,
            request_id=request_id,
            scope=scope,
            send=send,
            log=self._log,
            clock=self._clock,
        )
        scope[ON_DEPARTURE] = flight.leave
        await flight.run(receive, now_s)

    def _judge(
        self, scope: Scope, target: Target | None, body: bytes, now_s: float
    ) -> tuple[bytes, Admitted | Whole]:
        """The names to log, and what the request gets: a seat and an answer, or an error now."""
        if target is None:
            error = ApiError(404, f"Unknown path {scope['path']!r}", "unknown_url")
            return _NO_NAMES, _refusal(error)
        provider = target.provider
        if scope["method"] != target.method:
            return provider.names, _method_not_allowed(target)
        key = presented_key(scope, provider)
        if key is None:
            return provider.names, _unknown_token()
        key_names = provider.key_names[key]
        if len(body) > LARGEST_BODY_BYTES:
            message = f"The body is larger than {LARGEST_BODY_BYTES} bytes"
            return key_names, _refusal(ApiError.of_status(413, message))
        request = decode_request(body, deployment=target.deployment)
        if isinstance(request, ApiError):
            return key_names, _refusal(request)
        lane = provider.lanes.get((key, request.api_name))
        if lane is None:
            message = f"The model {request.api_name!r} does not exist"
            return key_names, _refusal(ApiError.of_status(404, message))
        if self._faults is not None:
            return _disturbed(self._faults, lane, request, now_s)
        composed = _admit(lane, request, now_s, None)
        if isinstance(composed, Whole):
            return lane.names, composed
        return lane.names, Admitted(lane, lane.names, composed.answer, composed.latency_s)


def _disturbed(
    faults: FaultBook, lane: ServedLane, request: ChatRequest, now_s: float
) -> tuple[bytes, Admitted | Whole]:
    """The names to log and what the request gets, with what the script says of it."""
    fault = faults.decide(lane, now_s, lambda: draw_of(lane, request).name)
    names = lane.names if fault is None else with_fault(lane.names, fault.label)
    effect = None if fault is None else fault.effect
    if isinstance(effect, Error) and not effect.after_s:
        return names, error_answer(effect)
    composed = _admit(lane, request, now_s, effect)
    headers = faults.headers(lane, now_s)
    if isinstance(composed, Whole):
        # What a limit refused is not the fault's doing.
        return lane.names, with_headers(composed, headers)
    faults.count_tokens(lane, composed.n_tokens)
    answer = with_headers(composed.answer, headers)
    return names, Admitted(lane, names, answer, composed.latency_s)


def _admit(
    lane: ServedLane, request: ChatRequest, now_s: float, effect: Effect | None
) -> Composed | Whole:
    """The answer of a request that has a seat now, or why it has none."""
    early = compose(lane, request, effect) if lane.path.counts_tokens else None
    if isinstance(early, ApiError):
        return _refusal(early)
    exceeded = lane.path.admit(now_s, 0 if early is None else early.n_tokens)
    if exceeded is not None:
        return _refusal(ApiError.over_limit(exceeded))
    composed = early or compose(lane, request, effect)
    if isinstance(composed, ApiError):
        lane.path.free()
        return _refusal(composed)
    return composed


def _looked_up(scope: Scope, target: Target) -> Whole:
    """The answer to what is asked without a body."""
    if scope["method"] != target.method:
        return _method_not_allowed(target)
    if target.metrics:
        return Whole(encode_metrics(target.provider), 200, METRICS_HEADERS)
    if presented_key(scope, target.provider) is None:
        return _unknown_token()
    return Whole(encode_models(target.provider.api_names))


async def _send_whole(send: Send, whole: Whole) -> None:
    await respond(send, whole.status, whole.body, whole.headers)


def _refusal(error: ApiError) -> Whole:
    return Whole(error.body(), error.status, tuple(error.headers()))


def _method_not_allowed(target: Target) -> Whole:
    return _refusal(ApiError(405, f"Only {target.method} is allowed here", "method_not_allowed"))


def _unknown_token() -> Whole:
    # Neither the token nor a part of it: what was sent may be a real key, sent here by mistake.
    return _refusal(ApiError.of_status(401, "Incorrect or no API key provided"))
