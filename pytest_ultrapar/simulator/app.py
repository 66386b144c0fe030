"""The simulated provider as a plain ASGI application: authorization, answers and their timing."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.server_json import UNREADABLE
from pytest_ultrapar.simulator.answer import (
    CLOSE,
    ON_DEPARTURE,
    Answer,
    Pieces,
    Receive,
    Scope,
    Send,
    Whole,
    read_body,
    respond,
)
from pytest_ultrapar.simulator.api_error import ApiError, RefusedError
from pytest_ultrapar.simulator.completion import complete
from pytest_ultrapar.simulator.exchange import Request, Usage
from pytest_ultrapar.simulator.faults.kinds import Error
from pytest_ultrapar.simulator.faults.selection import FaultBook
from pytest_ultrapar.simulator.limits import Lateness
from pytest_ultrapar.simulator.log import LogFile, encode_names, with_more
from pytest_ultrapar.simulator.random_draws import Draw
from pytest_ultrapar.simulator.served_pool import METRICS_HEADERS, ServedLane, encode_metrics
from pytest_ultrapar.simulator.stream import STREAM_HEADERS
from pytest_ultrapar.simulator.url_paths import Target, presented_key, resource_of, targets
from pytest_ultrapar.simulator.wire.openai import models
from pytest_ultrapar.simulator.wire.resource import Resource, resource_named
from pytest_ultrapar.system.clock import Clock, CpuWaits

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_ultrapar.simulator.faults.kinds import Effect
    from pytest_ultrapar.simulator.faults.script import FaultScript
    from pytest_ultrapar.simulator.faults.timeline import Timeline
    from pytest_ultrapar.simulator.log import Event
    from pytest_ultrapar.simulator.served_pool import ServedProvider


class Composed(msgspec.Struct, frozen=True):
    """An answer that has not been sent yet.

    Attributes:
        latency_s: Seconds from the start of processing to the answer.
        usage: The tokens of the request and its answer.
    """

    answer: Answer
    latency_s: float
    usage: Usage


@dataclass(slots=True, eq=False)
class Flight:
    """A request that holds a seat. It frees the seat once: at its end, or when the client leaves.

    Attributes:
        composed: The answer to send.
        names: The request's own fields in its log lines, encoded.
        scope: The scope of the request.
        send: ASGI's callable that sends the answer.
    """

    lane: ServedLane
    composed: Composed
    names: bytes
    request_id: int
    scope: Scope
    send: Send
    log: LogFile
    clock: Clock
    _holds_seat: bool = True
    _begun_s: float = 0.0
    _timer: asyncio.TimerHandle | None = None
    _answering: asyncio.Task[None] | None = None

    async def run(self, receive: Receive, arrived_s: float) -> None:
        """Send the answer when it is due, and return; also return if the client leaves first.

        The method uses a timer and a single call of `receive`, which returns when the client
        disconnects, or after the answer. This takes 88 us of CPU per request; two tasks in
        `asyncio.wait` would take 107 us.

        Args:
            receive: ASGI's callable that receives messages.
            arrived_s: The time at which the request was admitted.
        """
        server_model = self.lane.server_model
        if server_model is None or server_model.arrive(self):
            self.begin(arrived_s)
        try:
            await receive()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._answering is None:
                self.leave()
        answering = self._answering
        if answering is None:
            return
        if answering.done():
            answering.result()
            return
        self.leave()
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering

    def begin(self, now_s: float) -> None:
        """Start processing. Call this once: at arrival, or when the queue lets the request run."""
        self._begun_s = now_s
        begins = self.composed.answer.begins
        if begins == math.inf:
            return
        delay_s = max(0.0, self._wait_s(begins))
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._begin_answer)

    def leave(self) -> None:
        """End without an answer because the client left; do nothing if the request has ended."""
        self._end("disconnect")

    def _wait_s(self, share: float) -> float:
        """Seconds until this share of the latency has passed; 0 or less if it already has."""
        return self._begun_s + share * self.composed.latency_s - self.clock.now_s()

    def _begin_answer(self) -> None:
        self._answering = asyncio.get_running_loop().create_task(self._send_answer())

    async def _send_answer(self) -> None:
        answer = self.composed.answer
        try:
            if not self._holds_seat:
                return
            if isinstance(answer, Whole):
                await respond(self.send, answer)
            else:
                await self._send_pieces(answer)
        finally:
            self._end("end", answer.status)

    async def _send_pieces(self, answer: Pieces) -> None:
        """Send each piece when it is due. With the ending `silence`, wait until cancelled."""
        if answer.status is not None:
            headers = list(answer.headers)
            begun = {"type": "http.response.start", "status": answer.status, "headers": headers}
            await self.send(begun)
        for share, content in answer.pieces:
            if (wait_s := self._wait_s(share)) > 0:
                await asyncio.sleep(wait_s)
            await self.send({"type": "http.response.body", "body": content, "more_body": True})
        if answer.ending == "complete":
            await self.send({"type": "http.response.body"})
        elif answer.ending == "close":
            self.scope[CLOSE]()
        else:
            await asyncio.get_running_loop().create_future()

    def _end(self, event: Event, status: int | None = None) -> None:
        if not self._holds_seat:
            return
        self._holds_seat = False
        self.lane.path.free()
        now_s = self.clock.now_s()
        self.log.write(now_s, event, self.request_id, self.names, status)
        if self.lane.server_model is not None:
            following = self.lane.server_model.leave(self)
            if following is not None:
                following.begin(now_s)


def drawn(lane: ServedLane, request: Request) -> Draw:
    """Return the random values of a request. They are the same on all lanes of its model."""
    return Draw(request.messages, model=lane.lane.model, seed=lane.seed, request_seed=request.seed)


def compose(
    lane: ServedLane, request: Request, resource: Resource, effect: Effect | None
) -> Composed:
    """Return the answer of the lane's persona, in the form that the request asks for.

    Args:
        lane: The lane of the request.
        request: The request.
        resource: The wire format of the answer.
        effect: The effect of a fault; None if no fault affects the request.

    Raises:
        RefusedError: The request cannot be answered, or the persona failed (500).
    """
    draw = drawn(lane, request)
    try:
        completion = complete(lane, request, draw)
        answer: Answer
        if request.stream:
            answer = Pieces(200, STREAM_HEADERS, resource.pieces(request, completion))
        else:
            answer = Whole(resource.whole(request, completion))
        latency_s = draw.latency_s(lane.simulation.latency)
        if effect is not None:
            answer, latency_s = effect.of_answer(answer, latency_s, resource)
        return Composed(answer, latency_s, completion.usage)
    except RefusedError:
        raise
    except Exception:  # noqa: BLE001 - one broken persona must not stop the server
        traceback.print_exc(file=sys.stderr)
        said = "The persona failed; see the server's stderr for the error"
        raise RefusedError(ApiError.of_status(500, said)) from None


def admit(
    lane: ServedLane,
    request: Request,
    resource: Resource,
    effect: Effect | None,
    *,
    now_s: float,
    since_s: float,
) -> Composed:
    """Take a seat and return the answer. The times have the same meaning as in `LimitPath.admit`.

    Raises:
        RefusedError: A limit refuses the request, or the request cannot be answered.
    """
    path = lane.path
    n_tokens, composed = 0, None
    if path.counts_tokens:
        composed = compose(lane, request, resource, effect)
        n_tokens = composed.usage.n_in + composed.usage.n_out
    if (exceeded := path.admit(now_s, n_tokens, since_s)) is not None:
        raise RefusedError(ApiError.over_limit(exceeded))
    try:
        return composed or compose(lane, request, resource, effect)
    except RefusedError:
        path.free()
        raise


LARGEST_BODY_BYTES = 1024 * 1024
_NO_NAMES = encode_names()


class Simulator:
    """Answers requests to the providers of a pool.

    A request counts as arrived when its last byte has arrived; it is admitted and logged at that
    moment. Therefore counting arrivals and ends in the log gives exactly the number of seats that
    the server counted.
    """

    def __init__(
        self,
        providers: Collection[ServedProvider],
        *,
        log: LogFile,
        clock: Clock,
        timeline: Timeline,
        script: FaultScript,
    ) -> None:
        self._targets = targets(providers)
        lanes = [lane for provider in providers for lane in provider.lanes.values()]
        self._faults = FaultBook(script, lanes, timeline)
        self._log = log
        self._clock = clock
        self._timeline = timeline
        self._n_requests = 0
        self._waits = CpuWaits()
        self._lateness = Lateness(self._waits.total_s())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. The server calls this in a separate task."""
        body = await read_body(receive, limit_bytes=LARGEST_BODY_BYTES)
        if body is None:
            return
        now_s = self._clock.now_s()
        target = self._targets.get(scope["path"])
        if target is not None and target.resource_name is None:
            await respond(send, _looked_up(scope, target))
            return
        self._timeline.begin(now_s)
        self._n_requests += 1
        request_id = self._n_requests
        since_s = self._lateness.since_s(now_s, self._waits.total_s())
        names, judged = self._judge(scope, target, body, now_s, since_s)
        arrived = names if since_s == now_s else with_more(names, since=since_s)
        self._log.write(now_s, "arrival", request_id, arrived)
        if isinstance(judged, Whole):
            self._log.write(now_s, "refused", request_id, names, judged.status)
            await respond(send, judged)
            return
        flight = Flight(*judged, names, request_id, scope, send, self._log, self._clock)
        scope[ON_DEPARTURE] = flight.leave
        await flight.run(receive, now_s)

    def _judge(
        self, scope: Scope, target: Target | None, body: bytes, now_s: float, since_s: float
    ) -> tuple[bytes, tuple[ServedLane, Composed] | Whole]:
        """Return the names to log, and either a seat with an answer, or an immediate error."""
        if target is None or target.resource_name is None:
            unknown = ApiError(404, f"Unknown path {scope['path']!r}", "unknown_url")
            return _NO_NAMES, resource_of(scope).refusal(unknown)
        provider, resource = target.provider, resource_named(target.resource_name)
        names = provider.names
        if scope["method"] != "POST":
            return names, resource.refusal(_method_not_allowed("POST"))
        key = presented_key(scope, provider, resource)
        if key is None:
            return names, resource.refusal(_UNKNOWN_TOKEN)
        names = provider.key_names[key]
        if len(body) > LARGEST_BODY_BYTES:
            message = f"The body is larger than {LARGEST_BODY_BYTES} bytes"
            return names, resource.refusal(ApiError.of_status(413, message))
        try:
            request = resource.read(body, name=target.api_name, scope=scope)
        except RefusedError as refused:
            return names, resource.refusal(refused.error)
        except UNREADABLE as error:
            return names, resource.refusal(ApiError(400, f"The body cannot be read: {error}"))
        lane = provider.lanes.get((key, request.api_name))
        if lane is None:
            message = f"The model {request.api_name!r} does not exist"
            return names, resource.refusal(ApiError.of_status(404, message))
        names, effect = lane.names, None
        fault = self._faults.decide(lane, now_s, lambda: drawn(lane, request).name)
        if fault is not None:
            names = with_more(names, fault=fault.label)
            effect = fault.effect
        if isinstance(effect, Error) and not effect.after_s:
            return names, effect.answer(resource)
        try:
            composed = admit(lane, request, resource, effect, now_s=now_s, since_s=since_s)
        except RefusedError as refused:
            # A limit refused the request, so the fault had no effect.
            return lane.names, resource.refusal(refused.error)
        usage = composed.usage
        more = with_more(names, tokens_in=usage.n_in, tokens_out=usage.n_out)
        return more, (lane, composed)


def _looked_up(scope: Scope, target: Target) -> Whole:
    """Return the answer to a request without a body."""
    resource = resource_of(scope)
    if scope["method"] != "GET":
        return resource.refusal(_method_not_allowed("GET"))
    if target.metrics:
        return Whole(encode_metrics(target.provider), 200, METRICS_HEADERS)
    if presented_key(scope, target.provider, resource) is None:
        return resource.refusal(_UNKNOWN_TOKEN)
    return Whole(models(target.provider.api_names))


def _method_not_allowed(allowed: str) -> ApiError:
    return ApiError(405, f"Only {allowed} is allowed here", "method_not_allowed")


# The message contains no part of the token, which may be a real key that was sent by mistake.
_UNKNOWN_TOKEN = ApiError.of_status(401, "Incorrect or no API key provided")
