"""The interface of the broker for engines: each method sends a message of `wire`.

To add a method, add the message there, a line in `LaneBroker.handle`, and the method here.
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
    """Sends messages to the broker. Call every method on the engine's loop."""

    def __init__(self) -> None:
        # Requests without a lease yet, by id.
        self._leases: dict[int, asyncio.Future[Lease]] = {}

    @abstractmethod
    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """A future of the lease; cancel it to withdraw the request.

        It fails with `NoLaneError` if every lane of the model is removed, and with
        `ConnectionError` if the broker is gone. A task that is cancelled between the grant and its
        own next step loses the result of the future: `acquire_lease` gives such a lease back.
        """

    @abstractmethod
    def tell(self, message: wire.ClientMessage) -> None:
        """Send a message that needs no answer. Never waits; does nothing if the broker is gone."""

    @abstractmethod
    def ask(self, message: wire.ClientMessage) -> asyncio.Future[Any]:
        """A future of the answer; it fails with `ConnectionError` if the broker is gone."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection. The broker takes back all leases, and waiting futures fail."""

    def release(
        self, lease: Lease, outcome: LeaseOutcome, feedback: Feedback = NO_FEEDBACK
    ) -> None:
        """Give a lease back with the outcome of its request. Never waits."""
        if debug_log.is_on():
            debug_log.tell_return(lease, outcome, feedback.retry_after_s)
        self.tell(wire.Release(lease.lease_id, outcome, feedback))

    async def pay(self, lease: Lease, most: TokenBounds) -> bool:
        """Reserve the money for a request on a lease that lacks it; return whether it is reserved.

        If not, there is not enough money. Give the lease back as `unsent`, and request a new one
        with `LeaseRequest.most`, which waits until money is free.

        Raises:
            ConnectionError: The broker is gone.
        """
        paid = await self.ask(wire.Pay(lease.lease_id, most))
        return bool(paid.is_paid)

    def episode_ended(self, *case_ids: str) -> None:
        """Report that cases need no further lease; groups that wait for them may then start."""
        self.tell(wire.EpisodesOver(case_ids))

    async def assign(self, assignment: Assignment) -> None:
        """Put an assignment in force. The controller calls this before any request.

        Raises:
            ConfigError: The broker's pool does not allow it.
            ConnectionError: The broker is gone, or this connection is not a controller's.
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

    # -- for subclasses ----------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        """Give a request its grant or refusal; return a lease that it no longer wants."""
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
        """Withdraw a request if its future was cancelled. A callback of that future."""
        if future.cancelled() and self._leases.get(request_id) is future:
            del self._leases[request_id]
            self.tell(wire.Withdraw(request_id))

    def _fail_all(self, reason: str) -> None:
        """Fail all futures that wait for a lease, since the broker is gone."""
        waiting, self._leases = self._leases, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(reason))


# -- wait for a lease without ever losing one, and use it in time ----------------------------------


async def acquire_lease(port: BrokerInterface, request: LeaseRequest) -> Lease:
    """Wait for a lease. If the caller is cancelled, no request and no lease is left behind.

    A task that is cancelled after its future got the lease and before it ran again never sees the
    lease. This function gives it back as `unsent`; else its seats would stay taken until the run
    ends.

    Raises:
        InfraError: Every lane of the model is removed, or no retry is left.
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
    """Whether a request may be sent on a lease now; call this right before the send.

    A lease that is too old is given back as `unsent`. A send that is later than promised is
    reported to the broker.
    """
    if now_s > lease.send_by_s:
        port.release(lease, "unsent", Feedback(late_s=now_s - lease.granted_s))
        return False
    report_late_send(port, lease, now_s)
    return True


def report_late_send(port: BrokerInterface, lease: Lease, now_s: float) -> None:
    """Report a send that happens now to the broker, if it is later than promised."""
    if now_s > lease.late_after_s:
        port.tell(wire.SentLate(lease.lease_id, now_s - lease.granted_s))
