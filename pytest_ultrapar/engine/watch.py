"""The seam at which somebody looks on while an engine works: told everything, decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback

if TYPE_CHECKING:
    import asyncio

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import (
        BrokerPort,
        BrokerStatus,
        Lease,
        LeaseOutcome,
        LeaseRequest,
    )
    from pytest_ultrapar.clock import Clock
    from pytest_ultrapar.engine.retry import Verdict
    from pytest_ultrapar.pool.model import LaneId
    from pytest_ultrapar.records import Attempt, EpisodeEnded


class Watch(Protocol):
    """Who looks on; every method is called on the engine's thread and must neither wait nor raise.

    What it is told holds no message and no reply, except `EpisodeEnded`, which holds both.
    """

    def lease_asked(self, request: LeaseRequest) -> None:
        """A request for a lease goes to the broker."""
        ...

    def lease_granted(self, request: LeaseRequest, lease: Lease, waited_s: float) -> None:
        """Its answer came, `waited_s` seconds after it was asked for."""
        ...

    def lease_denied(self, request: LeaseRequest, reason: str, waited_s: float) -> None:
        """It ended without a lease: `withdrawn` by us, or the name of the exception."""
        ...

    def lease_returned(
        self, lease: Lease, outcome: LeaseOutcome, retry_after_s: float | None, held_s: float
    ) -> None:
        """A lease went back, `held_s` seconds after the broker had granted it."""
        ...

    def sent(self, case_id: str, turn: int, attempt: int, lease: Lease) -> None:
        """A request of the case is about to leave on the lease's lane."""
        ...

    def answered(self, case_id: str, attempt: Attempt, lane: LaneId) -> None:
        """That request is over, however it ended."""
        ...

    def decided(
        self, case_id: str, turn: int, outcome: LeaseOutcome, verdict: Verdict, backoff_s: float
    ) -> None:
        """What the retry layer makes of an attempt that brought no reply."""
        ...

    def episode_began(self, case_id: str, model: str, first: Lease) -> None:
        """An episode got its first lease."""
        ...

    def episode_ended(self, ended: EpisodeEnded) -> None:
        """An episode is over and recorded."""
        ...


class WatchedPort:
    """A broker's port whose leases are told to a watch; otherwise the port itself."""

    def __init__(self, port: BrokerPort, watch: Watch, clock: Clock) -> None:
        self._port = port
        self._watch = watch
        self._clock = clock

    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """As the port's own."""
        asked_s = self._clock.now_s()
        self._watch.lease_asked(request)
        future = self._port.acquire(request)

        def over(done: asyncio.Future[Lease]) -> None:
            waited_s = self._clock.now_s() - asked_s
            if done.cancelled():
                self._watch.lease_denied(request, "withdrawn", waited_s)
            elif (error := done.exception()) is not None:
                self._watch.lease_denied(request, type(error).__name__, waited_s)
            else:
                self._watch.lease_granted(request, done.result(), waited_s)

        # The grant is told before what is done with it: at once, since a lease that is there
        # already is awaited without a pass of the loop, or as the future's first callback.
        if future.done():
            over(future)
        else:
            future.add_done_callback(over)
        return future

    def release(
        self, lease: Lease, outcome: LeaseOutcome, feedback: Feedback = NO_FEEDBACK
    ) -> None:
        """As the port's own."""
        self._port.release(lease, outcome, feedback)
        held_s = self._clock.now_s() - lease.granted_s
        self._watch.lease_returned(lease, outcome, feedback.retry_after_s, held_s)

    def pay(
        self, lease: Lease, most_in: int, most_out: int, n_guessed: int
    ) -> asyncio.Future[bool]:
        """As the port's own."""
        return self._port.pay(lease, most_in, most_out, n_guessed)

    def sent_late(self, lease: Lease, late_s: float) -> None:
        """As the port's own."""
        self._port.sent_late(lease, late_s)

    def episode_ended(self, case_id: str, group: str) -> None:
        """As the port's own."""
        self._port.episode_ended(case_id, group)

    async def assign(self, assignment: Assignment) -> None:
        """As the port's own."""
        await self._port.assign(assignment)

    async def status(self) -> BrokerStatus:
        """As the port's own."""
        return await self._port.status()

    async def close(self) -> None:
        """As the port's own."""
        await self._port.close()
