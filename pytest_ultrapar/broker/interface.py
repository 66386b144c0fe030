"""The broker's interface for engines. Each method sends a message that `wire` defines.

To add a method, add the message to `wire`, a branch to `LaneBroker.handle`, and the method here.
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
        TokenBounds,
    )


class BrokerInterface(ABC):
    """Sends messages to the broker. Call each method on the engine's event loop."""

    def __init__(self) -> None:
        # Requests that have no lease yet, by id.
        self._leases: dict[int, asyncio.Future[Lease]] = {}

    @abstractmethod
    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """Request a lease and return a future for it. Cancel the future to withdraw the request.

        The future fails with `NoLaneError` if the broker refuses the request, for example because
        every lane of the model is removed, and with `ConnectionError` if the broker is gone. If the
        task that awaits the future is cancelled after the grant but before it runs again, it never
        gets the lease. `acquire_lease` gives such a lease back.
        """

    @abstractmethod
    def tell(self, message: wire.ClientMessage) -> None:
        """Send a message that needs no answer. Never waits. Does nothing if the broker is gone."""

    @abstractmethod
    def ask(self, message: wire.ClientMessage) -> asyncio.Future[Any]:
        """Send a message and return a future for the answer.

        The future fails with `ConnectionError` if the broker is gone.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connection. The broker takes its leases back, and pending futures fail."""

    def release(
        self, lease: Lease, outcome: LeaseOutcome, feedback: Feedback = NO_FEEDBACK
    ) -> None:
        """Give a lease back with the outcome of its request. Never waits."""
        if debug_log.is_on():
            debug_log.tell_return(lease, outcome, feedback.retry_after_s)
        self.tell(wire.Release(lease.lease_id, outcome, feedback))

    async def pay(self, lease: Lease, most: TokenBounds) -> bool:
        """Reserve the money for a request whose lease was granted without a reservation of money.

        Returns:
            Whether the money is reserved. If not, there is not enough money left, the reservation
            could not be recorded, or the lease has already ended. Then give the lease back as
            `unsent`, and set `LeaseRequest.most` in a new request, which waits for money.

        Raises:
            ConnectionError: The broker is gone.
        """
        paid = await self.ask(wire.Pay(lease.lease_id, most))
        return bool(paid.is_paid)

    def episode_ended(self, *case_ids: str) -> None:
        """Report that cases need no more leases. Groups that wait for this may then start."""
        self.tell(wire.EpisodesOver(case_ids))

    async def assign(self, assignment: Assignment) -> None:
        """Apply an assignment. The controller calls this before any lease is requested.

        Raises:
            ConfigError: The broker's pool does not allow the assignment.
            ConnectionError: The broker is gone, or this connection is not a controller's.
        """
        error = (await self.ask(wire.Assign(assignment))).error
        if error is not None:
            raise ConfigError(error)

    async def status(self) -> BrokerStatus:
        """Return a snapshot of the run, for the progress line and the summary.

        Raises:
            ConnectionError: The broker is gone.
        """
        return cast("BrokerStatus", (await self.ask(wire.AskStatus())).status)

    # -- for subclasses ----------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        """Pass on a grant or refusal. If its request was withdrawn, give the lease back."""
        future = self._leases.pop(action.request_id, None)
        if future is not None and future.cancelled():
            future = None
        if isinstance(action, Refusal):
            if future is not None:
                future.set_exception(NoLaneError(action.reason, action.kind))
        elif future is not None:
            future.set_result(action.lease)
        else:
            # The request was withdrawn before its grant arrived.
            self.release(action.lease, "unsent")

    def _withdraw(self, request_id: int, future: asyncio.Future[Lease]) -> None:
        """Withdraw a request if its future was cancelled. The future calls this when it is done."""
        if future.cancelled() and self._leases.get(request_id) is future:
            del self._leases[request_id]
            self.tell(wire.Withdraw(request_id))

    def _fail_all(self, reason: str) -> None:
        """Fail all futures that wait for a lease, because the broker is gone."""
        waiting, self._leases = self._leases, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(reason))


# -- wait for a lease without ever losing it, and use it in time -----------------------------------


async def acquire_lease(port: BrokerInterface, request: LeaseRequest) -> Lease:
    """Wait for a lease. If the caller is cancelled, no request and no lease is left behind.

    If the caller's task is cancelled after the lease was granted but before the task runs again,
    the caller never gets the lease. This function then gives the lease back as `unsent`. Otherwise
    its seats would stay taken until the lease's term ends.

    Raises:
        InfraError: The broker refuses the request, for example because every lane of the model is
            removed.
        ConnectionError: The broker is gone.
    """
    future = port.acquire(request)
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            port.release(future.result(), "unsent")
        raise


def may_send(port: BrokerInterface, lease: Lease, now_s: float) -> bool:
    """Whether a request may be sent on a lease now. Call this right before you send the request.

    If the lease is too old, this function gives it back as `unsent` and returns False. If the send
    is allowed, but later than promised, this function reports the delay to the broker.
    """
    if now_s > lease.send_by_s:
        port.release(lease, "unsent", Feedback(late_s=now_s - lease.granted_s))
        return False
    report_late_send(port, lease, now_s)
    return True


def report_late_send(port: BrokerInterface, lease: Lease, now_s: float) -> None:
    """Report the delay to the broker if a request is sent later than promised."""
    if now_s > lease.late_after_s:
        port.tell(wire.SentLate(lease.lease_id, now_s - lease.granted_s))
