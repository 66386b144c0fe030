"""The broker as an engine sees it: each of its words is a message of `wire`.

A new word is a message there, a line of `LaneBroker.handle`, and a method here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.broker import debug_log, wire
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback
from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import BrokerStatus, Lease, LeaseOutcome, LeaseRequest


class BrokerPort(ABC):
    """Brings messages to the broker; every method is called on the engine's loop."""

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

    async def pay(self, lease: Lease, most_in: int, most_out: int, n_guessed: int) -> bool:
        """Have the money for a request reserved, whose lease has none yet; whether it is.

        The figures are those of a `PricedRequest`. False: that much is not there; the lease is to
        be given back as `unsent`, and asked for anew with a `PricedRequest`, which waits until
        money is free.

        Raises:
            ConnectionError: The broker is gone.
        """
        paid = await self.ask(wire.Pay(lease.lease_id, most_in, most_out, n_guessed))
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
