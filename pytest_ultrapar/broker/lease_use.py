"""Waiting for a lease without ever losing one, and using it in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.protocol import Feedback

if TYPE_CHECKING:
    from pytest_ultrapar.broker.port import BrokerPort
    from pytest_ultrapar.broker.protocol import Lease, LeaseRequest


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
        port.sent_late(lease, now_s - lease.granted_s)
