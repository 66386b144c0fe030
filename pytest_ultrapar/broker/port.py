"""The broker as an engine sees it: each of its words is a message of `wire`.

A new word is a message there, a line of `LaneBroker.handle`, and a method here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.broker import debug_log, wire
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback, Refusal
from pytest_ultrapar.errors import ConfigError, NoLaneError

if TYPE_CHECKING:
    import asyncio

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
        its own next step loses the result of the future: `lease_use.acquire_lease` gives such a
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

    def sent_late(self, lease: Lease, late_s: float) -> None:
        """Say, before the request of a lease is sent, that it is sent so long after the grant.

        Called where that is after `Lease.late_after_s`. Never waits.
        """
        self.tell(wire.SentLate(lease.lease_id, late_s))

    def episode_ended(self, case_id: str) -> None:
        """Say that a case needs no further lease; groups that wait for its group may then start."""
        self.tell(wire.EpisodeOver(case_id))

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
        status: BrokerStatus = (await self.ask(wire.AskStatus())).status
        return status

    # -- for those who bring the messages ----------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        """Let a request know what became of it; a lease that it no longer wants goes back."""
        future = self._leases.pop(action.request_id, None)
        is_wanted = future is not None and not future.cancelled()
        if isinstance(action, Refusal):
            if future is not None and is_wanted:
                future.set_exception(NoLaneError(action.reason, action.kind))
        elif future is not None and is_wanted:
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
