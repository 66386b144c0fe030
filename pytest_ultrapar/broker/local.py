"""The broker as an object in the process, for runs without xdist."""

from __future__ import annotations

import asyncio  # noqa: TC003 - the loop and futures are what this is about
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_ultrapar.broker import debug_log
from pytest_ultrapar.broker.host import BrokerHost
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Action, Feedback, Grant
from pytest_ultrapar.errors import NoLaneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import (
        BrokerStatus,
        Lease,
        LeaseOutcome,
        LeaseRequest,
    )
    from pytest_ultrapar.broker.settings import BrokerSettings
    from pytest_ultrapar.clock import Clock


class LocalBroker:
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
        self._loop = loop
        self._worker = worker
        self._host = BrokerHost(
            settings, clock, loop, carry_out=self._deliver, on_broken=self._broken
        )
        self._broker = self._host.broker
        self._broker.connect(worker, clock.now_s())
        self._futures: dict[int, asyncio.Future[Lease]] = {}
        self._serves = True
        self._last_words: BrokerStatus | None = None

    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """A future of the lease, done already when a lane is free; cancelling it withdraws."""
        future: asyncio.Future[Lease] = self._loop.create_future()
        if not self._serves:
            future.set_exception(ConnectionError("the broker is closed"))
            return future
        request_id = request.request_id
        now_s = self._host.now_s()
        self._futures[request_id] = future
        self._carry_out(self._broker.request(self._worker, request, now_s))
        if not future.done():
            # Only a future that waits can be cancelled; a callback on every one costs as much as
            # the grant.
            future.add_done_callback(lambda done: self._withdraw(request_id, done))
        if debug_log.is_on():
            debug_log.tell_lease(request, future)
        return future

    def release(
        self, lease: Lease, outcome: LeaseOutcome, feedback: Feedback = NO_FEEDBACK
    ) -> None:
        """Give a lease back with what became of its request."""
        if debug_log.is_on():
            debug_log.tell_return(lease, outcome, feedback.retry_after_s)
        if self._serves:
            now_s = self._host.now_s()
            self._carry_out(
                self._broker.release(self._worker, lease.lease_id, outcome, feedback, now_s)
            )

    def pay(
        self, lease: Lease, most_in: int, most_out: int, n_guessed: int
    ) -> asyncio.Future[bool]:
        """A future, done already: whether the money for a request was reserved."""
        future: asyncio.Future[bool] = self._loop.create_future()
        if not self._serves:
            future.set_exception(ConnectionError("the broker is closed"))
            return future
        now_s = self._host.now_s()
        is_paid, actions = self._broker.pay(
            self._worker, lease.lease_id, (most_in, most_out, n_guessed), now_s
        )
        future.set_result(is_paid)
        self._carry_out(actions)
        return future

    def sent_late(self, lease: Lease, late_s: float) -> None:
        """Say that a request is sent so long after its grant."""
        if self._serves:
            now_s = self._host.now_s()
            self._carry_out(self._broker.sent_late(self._worker, lease.lease_id, late_s, now_s))

    def episode_ended(self, case_id: str, group: str) -> None:
        """Say that a case needs no further lease."""
        if self._serves:
            now_s = self._host.now_s()
            self._carry_out(self._broker.episode_ended(self._worker, case_id, group, now_s))

    async def assign(self, assignment: Assignment) -> None:
        """Carry out an assignment from now on.

        Raises:
            ConfigError: When it cannot be carried out on this pool.
        """
        self._carry_out(self._broker.assign(assignment, self._host.now_s()))

    async def status(self) -> BrokerStatus:
        """A snapshot for progress and summary."""
        return self._snapshot()

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

    def _fail_all(self, reason: str) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(ConnectionError(reason))
        self._futures.clear()

    def _broken(self, error: Exception) -> None:
        self._serves = False
        self._fail_all(f"the broker failed: {error!r}")

    def _withdraw(self, request_id: int, future: asyncio.Future[Lease]) -> None:
        if not (future.cancelled() and self._futures.get(request_id) is future):
            return
        del self._futures[request_id]
        if self._serves:
            now_s = self._host.now_s()
            self._carry_out(self._broker.withdraw(self._worker, request_id, now_s))

    def _carry_out(self, actions: list[Action]) -> None:
        self._deliver(actions)
        self._host.arm()

    def _deliver(self, actions: list[Action]) -> None:
        unwanted = []
        for action in actions:
            # Gone when its withdrawal is what brought this: time goes on first, and may end a lane.
            future = self._futures.pop(action.request_id, None)
            if isinstance(action, Grant):
                if future is None or future.cancelled():
                    # Cancelled in this round of the loop; the callback that withdraws comes
                    # after us.
                    unwanted.append(action.lease)
                else:
                    future.set_result(action.lease)
            elif future is not None and not future.cancelled():
                future.set_exception(NoLaneError(action.reason, action.kind))
        for lease in unwanted:
            self.release(lease, "unsent")
