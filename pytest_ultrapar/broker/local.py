"""The broker as an object in the process, for runs without xdist."""

from __future__ import annotations

import asyncio  # noqa: TC003 - the loop and futures are what this is about
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.broker import debug_log, wire
from pytest_ultrapar.broker.host import BrokerHost
from pytest_ultrapar.broker.port import BrokerPort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.broker.protocol import Action, BrokerStatus, Lease, LeaseRequest
    from pytest_ultrapar.broker.settings import BrokerSettings
    from pytest_ultrapar.system.clock import Clock


class LocalBroker(BrokerPort):
    """A `BrokerPort` in-process: leases are granted without leaving the loop.

    Every method must be called on the loop's thread; the loop may be asyncio's or uvloop's.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        worker: str = "main",
    ) -> None:
        """Start with nothing in flight.

        Args:
            settings: See `BrokerSettings`.
            clock: Source of all times in leases.
            loop: Where futures live; it need not run yet.
            worker: Name of this process in assignments.

        Raises:
            ConfigError: The memory of a day cannot be read or trusted.
        """
        super().__init__()
        self._loop = loop
        self._worker = worker
        self._host = BrokerHost(
            settings, clock, loop, carry_out=self._deliver, on_broken=self._broken
        )
        self._broker = self._host.broker
        self._broker.connect(worker, clock.now_s())
        self._serves = True
        self._last_words: BrokerStatus | None = None

    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """A future of the lease, done already when a lane is free; cancelling it withdraws."""
        future: asyncio.Future[Lease] = self._loop.create_future()
        if not self._serves:
            future.set_exception(ConnectionError("the broker is closed"))
            return future
        request_id = request.request_id
        self._leases[request_id] = future
        self._do(wire.Acquire(request))
        if not future.done():
            # Only a future that waits can be cancelled; a callback on every one costs as much as
            # the grant.
            future.add_done_callback(lambda done: self._withdraw(request_id, done))
        if debug_log.is_on():
            debug_log.tell_lease(request, future)
        return future

    def tell(self, message: wire.ClientMessage) -> None:
        """Say what needs no answer."""
        if self._serves:
            self._do(message)

    def ask(self, message: wire.ClientMessage) -> asyncio.Future[Any]:
        """A future of the answer, done already."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._serves:
            future.set_result(self._do(message))
        else:
            future.set_exception(ConnectionError("the broker is closed"))
        return future

    def _do(self, message: wire.ClientMessage) -> wire.Answer | None:
        answer, actions = self._broker.handle(self._worker, message, self._host.now_s())
        self._deliver(actions)
        self._host.arm()
        return answer

    def status_from_thread(self, timeout_s: float) -> BrokerStatus | None:
        """`status` for any thread but the loop's; None when the loop is busy for long.

        What it said when it was closed, if the loop has ended; None if it was not.

        A callback and no coroutine: the loop may be ending at this moment, which cancels every
        task that it has and leaves those that it was just given unawaited.
        """
        answer: Future[BrokerStatus] = Future()
        try:
            self._loop.call_soon_threadsafe(lambda: answer.set_result(self._snapshot()))
            return answer.result(timeout_s)
        except (RuntimeError, TimeoutError):  # the former from a loop that is closed
            return self._last_words

    def hold_claims_from_thread(
        self, until_s: float, taken: Sequence[str], again: Sequence[str]
    ) -> None:
        """`LaneBroker.hold_claims` for any thread; nothing happens once the loop is closed."""

        def hold() -> list[Action]:
            return self._broker.hold_claims(until_s, taken, again, self._host.now_s())

        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._host.move, hold)

    def _snapshot(self) -> BrokerStatus:
        return self._broker.status(self._host.now_s())

    async def close(self) -> None:
        """Give all leases back and fail what still waits with `ConnectionError`."""
        if self._serves:
            self._serves = False
            self._last_words = self._snapshot()
            self._broker.disconnect(self._worker, self._host.now_s())
            self._fail_all("the broker was closed")
        # A broker that failed has threads, a history and days to end all the same.
        self._host.close()

    def _broken(self, error: Exception) -> None:
        self._serves = False
        self._fail_all(f"the broker failed: {error!r}")

    def _deliver(self, actions: list[Action]) -> None:
        for action in actions:
            self._carry_out(action)
