"""The broker as an engine sees it: each of its words is a message of `wire`.

A new word is a message there, a line of `LaneBroker.handle`, and a method here.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from pytest_ultrapar.broker import debug_log, wire
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback, Refusal
from pytest_ultrapar.errors import ConfigError, NoLaneError

if TYPE_CHECKING:
    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import (
        Action,
        BrokerStatus,
        Lease,
        LeaseOutcome,
        LeaseRequest,
        Most,
    )


class BrokerPort(ABC):
    """Brings messages to the broker; every method is called on the engine's loop."""

    def __init__(self) -> None:
        # Of requests without a lease yet, by their id.
        self._leases: dict[int, asyncio.Future[Lease]] = {}

    @abstractmethod
    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """A future of the lease; cancelling it withdraws the request.

        It fails with `NoLaneError` when every lane of the model is removed, and with
        `ConnectionError` when the broker is gone. A task that is cancelled between the grant and
        its own next step loses the result of the future: `acquire_lease` gives such a
        lease back.
        """

    @abstractmethod
    def tell(self, message: wire.ClientMessage) -> None:
        """Say what needs no answer. Never waits; nothing happens when the broker is gone."""

    @abstractmethod
    def ask(self, message: wire.ClientMessage) -> asyncio.Future[Any]:
        """A future of the answer; it fails with `ConnectionError` when the broker is gone."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection; all leases still held come back, and what waits fails."""

    def release(
        self, lease: Lease, outcome: LeaseOutcome, feedback: Feedback = NO_FEEDBACK
    ) -> None:
        """Give a lease back with what became of its request. Never waits."""
        if debug_log.is_on():
            debug_log.tell_return(lease, outcome, feedback.retry_after_s)
        self.tell(wire.Release(lease.lease_id, outcome, feedback))

    async def pay(self, lease: Lease, most: Most) -> bool:
        """Have the money for a request reserved, whose lease has none yet; whether it is.

        False: that much is not there; the lease is to be given back as `unsent`, and asked for
        again with `LeaseRequest.most`, which waits until money is free.

        Raises:
            ConnectionError: The broker is gone.
        """
        paid = await self.ask(wire.Pay(lease.lease_id, most))
        return bool(paid.is_paid)

    def episode_ended(self, *case_ids: str) -> None:
        """Say that cases need no further lease; groups that wait for theirs may then start."""
        self.tell(wire.EpisodesOver(case_ids))

    async def assign(self, assignment: Assignment) -> None:
        """Carry out an assignment from now on. Called by the controller, before any request.

        Raises:
            ConfigError: It cannot be carried out on the broker's pool.
            ConnectionError: The broker is gone, or this connection is no controller's.
        """
        error = (await self.ask(wire.Assign(assignment))).error
        if error is not None:
            raise ConfigError(error)

    async def status(self) -> BrokerStatus:
        """A snapshot for progress and summary.

        Raises:
            ConnectionError: The broker is gone.
        """
        return cast("BrokerStatus", (await self.ask(wire.AskStatus())).status)

    # -- for those who bring the messages ----------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        """Let a request know what became of it; a lease that it no longer wants goes back."""
        future = self._leases.pop(action.request_id, None)
        if future is not None and future.cancelled():
            future = None
        if isinstance(action, Refusal):
            if future is not None:
                future.set_exception(NoLaneError(action.reason, action.kind))
        elif future is not None:
            future.set_result(action.lease)
        else:
            # Withdrawn while the grant was under way.
            self.release(action.lease, "unsent")

    def _withdraw(self, request_id: int, future: asyncio.Future[Lease]) -> None:
        """A callback of a request's future: withdraw the request if that is cancelled."""
        if future.cancelled() and self._leases.get(request_id) is future:
            del self._leases[request_id]
            self.tell(wire.Withdraw(request_id))

    def _fail_all(self, reason: str) -> None:
        """Fail what waits for a lease, as the broker is gone."""
        waiting, self._leases = self._leases, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(reason))


# -- waiting for a lease without ever losing one, and using it in time -----------------------------


async def acquire_lease(port: BrokerPort, request: LeaseRequest) -> Lease:
    """Wait for a lease; a caller cancelled at any moment leaves no request and no lease behind.

    A task that is cancelled after its future got the lease and before it ran again never sees the
    lease. It is given back here as `unsent`, else its seats would stay taken to the end of the run.

    Raises:
        InfraError: When every lane of the model is removed, or no retry is left.
        ConnectionError: When the broker is gone.
    """
    future = port.acquire(request)
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            port.release(future.result(), "unsent")
        raise


def may_send(port: BrokerPort, lease: Lease, now_s: float) -> bool:
    """Whether a request may be sent on a lease now; to be asked right before it is.

    A lease that is too old is given back as `unsent`. The broker hears of a send that is later than
    was promised.
    """
    if now_s > lease.send_by_s:
        port.release(lease, "unsent", Feedback(late_s=now_s - lease.granted_s))
        return False
    say_late(port, lease, now_s)
    return True


def say_late(port: BrokerPort, lease: Lease, now_s: float) -> None:
    """Let the broker hear of a send that goes now, if that is later than was promised."""
    if now_s > lease.late_after_s:
        port.tell(wire.SentLate(lease.lease_id, now_s - lease.granted_s))
