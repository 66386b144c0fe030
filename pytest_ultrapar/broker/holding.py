"""Waiting for a lease without ever losing one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import BrokerPort, Lease, LeaseRequest


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
