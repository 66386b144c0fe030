"""The broker as an object in the pytest process, for runs without xdist."""

from __future__ import annotations

import asyncio  # noqa: TC003 - this module is about the loop and futures
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.broker import debug_log, wire
from pytest_ultrapar.broker.event_loop import BrokerLoop
from pytest_ultrapar.broker.interface import BrokerInterface

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.broker.protocol import Action, BrokerStatus, Lease, LeaseRequest
    from pytest_ultrapar.broker.settings import BrokerSettings
    from pytest_ultrapar.system.clock import Clock


class LocalBroker(BrokerInterface):
    """A `BrokerInterface` in the same process, which grants a lease at once if a lane is free.

    Call each method on the loop's thread, unless its name ends in `from_thread`. The loop may be
    asyncio's or uvloop's.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        worker: str = "main",
    ) -> None:
        """Start with no requests in flight.

        Args:
            settings: See `BrokerSettings`.
            clock: Source of all times in leases.
            loop: The event loop that the futures belong to. It need not be running yet.
            worker: The name of this process in assignments.

        Raises:
            ConfigError: A file of daily limits cannot be read or trusted.
        """
        super().__init__()
        self._loop = loop
        self._worker = worker
        self._host = BrokerLoop(
            settings, clock, loop, carry_out=self._deliver, on_broken=self._broken
        )
        self._broker = self._host.broker
        self._broker.connect(worker, clock.now_s())
        self._serves = True
        self._last_words: BrokerStatus | None = None

    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """Request a lease and return a future for it, which is already done if a lane is free.

        Cancel the future to withdraw the request.
        """
        future: asyncio.Future[Lease] = self._loop.create_future()
        if not self._serves:
            future.set_exception(ConnectionError("the broker is closed"))
            return future
        request_id = request.request_id
        self._leases[request_id] = future
        self._do(wire.Acquire(request))
        if not future.done():
            # Only a pending future can be cancelled, and a callback costs as much as a grant.
            future.add_done_callback(lambda done: self._withdraw(request_id, done))
        if debug_log.is_on():
            debug_log.tell_lease(request, future)
        return future

    def tell(self, message: wire.ClientMessage) -> None:
        """Send a message that needs no answer."""
        if self._serves:
            self._do(message)

    def ask(self, message: wire.ClientMessage) -> asyncio.Future[Any]:
        """Send a message, and return a future for the answer, which is already done."""
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
        """Return the status. Call this from any thread except the loop's.

        This uses a callback and not a coroutine: a loop that is ending cancels all its tasks, and a
        new coroutine would never be awaited.

        Returns:
            The current status. If the loop has ended or does not react within `timeout_s`: the
            status at the broker's close, or None if it has not been closed.
        """
        answer: Future[BrokerStatus] = Future()
        try:
            self._loop.call_soon_threadsafe(lambda: answer.set_result(self._snapshot()))
            return answer.result(timeout_s)
        except (RuntimeError, TimeoutError):  # RuntimeError: the loop is closed
            return self._last_words

    def hold_claims_from_thread(
        self, until_s: float, taken: Sequence[str], again: Sequence[str]
    ) -> None:
        """Call `LaneBroker.hold_claims` from any thread. Does nothing if the loop is closed."""

        def hold() -> list[Action]:
            return self._broker.hold_claims(until_s, taken, again, self._host.now_s())

        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._host.move, hold)

    def _snapshot(self) -> BrokerStatus:
        return self._broker.status(self._host.now_s())

    async def close(self) -> None:
        """Give all leases back, and make pending futures fail with `ConnectionError`."""
        if self._serves:
            self._serves = False
            self._last_words = self._snapshot()
            self._broker.disconnect(self._worker, self._host.now_s())
            self._fail_all("the broker was closed")
        # Close a broker that failed, too: it also has threads, histories and daily limits.
        self._host.close()

    def _broken(self, error: Exception) -> None:
        self._serves = False
        self._fail_all(f"the broker failed: {error!r}")

    def _deliver(self, actions: list[Action]) -> None:
        for action in actions:
            self._carry_out(action)
