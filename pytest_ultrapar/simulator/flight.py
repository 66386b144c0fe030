"""One admitted request, from its seat to its answer."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Protocol

import msgspec

from pytest_ultrapar.simulator.answer import Answer
from pytest_ultrapar.simulator.asgi import CLOSE, Receive, Scope, Send
from pytest_ultrapar.simulator.served import ServedLane

if TYPE_CHECKING:
    from pytest_ultrapar.clock import Clock
    from pytest_ultrapar.simulator.log_line import Event


class Log(Protocol):
    """Where events go."""

    def write(
        self, now_s: float, event: Event, request_id: int, names: bytes, status: int | None = None
    ) -> None:
        """Add one event."""
        ...


class Admitted(msgspec.Struct, frozen=True):
    """A request that holds a seat, with the answer it will get.

    Attributes:
        names: What the log says of it.
        latency_s: How long the answer takes from the moment when the request is at work.
    """

    lane: ServedLane
    names: bytes
    answer: Answer
    latency_s: float


class Flight:
    """Holds the seat until the answer is sent or the client has left; gives it back once.

    Attributes:
        send: Where the answer goes.
    """

    __slots__ = (
        "_admitted",
        "_answering",
        "_begun_s",
        "_clock",
        "_holds_seat",
        "_log",
        "_request_id",
        "_scope",
        "_timer",
        "send",
    )

    def __init__(
        self,
        admitted: Admitted,
        *,
        request_id: int,
        scope: Scope,
        send: Send,
        log: Log,
        clock: Clock,
    ) -> None:
        self._admitted = admitted
        self._request_id = request_id
        self._scope = scope
        self.send = send
        self._log = log
        self._clock = clock
        self._holds_seat = True
        self._begun_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    async def run(self, receive: Receive, arrived_s: float) -> None:
        """Answer when it is due, unless the client leaves first; returns when either has happened.

        One `receive`, which uvicorn ends both at a disconnect and at the end of the answer, and a
        timer: 88 us of CPU per request in all, against 107 us with two tasks in `asyncio.wait`.

        Args:
            receive: ASGI's.
            arrived_s: When the request was judged.
        """
        station = self._admitted.lane.station
        if station is None or station.arrive(self):
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
        """Be at work from now on; called once, at the arrival or when a place is free."""
        self._begun_s = now_s
        admitted = self._admitted
        begins = admitted.answer.begins
        if begins == math.inf:
            return
        delay_s = max(0.0, now_s + begins * admitted.latency_s - self._clock.now_s())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._begin_answer)

    def leave(self) -> None:
        """End without an answer, since the client has left; does nothing after an end."""
        self._end("disconnect")

    def wait_s(self, share: float) -> float:
        """Seconds until so much of the latency has passed."""
        return self._begun_s + share * self._admitted.latency_s - self._clock.now_s()

    def close(self) -> None:
        """Close the connection, whatever has been sent."""
        self._scope[CLOSE]()

    def _begin_answer(self) -> None:
        self._answering = asyncio.get_running_loop().create_task(self._send_answer())

    async def _send_answer(self) -> None:
        answer = self._admitted.answer
        try:
            if self._holds_seat:
                await answer.deliver(self)
        finally:
            self._end("end", answer.status)

    def _end(self, event: Event, status: int | None = None) -> None:
        if not self._holds_seat:
            return
        self._holds_seat = False
        lane = self._admitted.lane
        lane.path.free()
        now_s = self._clock.now_s()
        self._log.write(now_s, event, self._request_id, self._admitted.names, status)
        if lane.station is not None:
            following = lane.station.leave(self)
            if following is not None:
                following.begin(now_s)
