"""A broker in its own process, and common steps of its tests."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.broker.client import connect_broker
from pytest_ultrapar.broker.process import BrokerDirectory, BrokerProcess
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.pool.model import Limit
from tests.pools import lane, pool

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

PATIENCE_S = 120.0
NUMBERS = itertools.count()
POOL = pool(
    [lane("a", "k0", "k0"), lane("fast", "k1", "k1", model="n")],
    Limit("k0", "key", workers=3),
    Limit("k1", "key", qps=50.0),
)


@contextlib.contextmanager
def running(directory: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(directory))
    try:
        yield process
        assert process.is_alive
        assert process.said() == ""
    finally:
        process.stop()


def fresh_name() -> str:
    return f"gw{next(NUMBERS)}"


def play(story: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        await asyncio.wait_for(story, PATIENCE_S)

    asyncio.run(main())


def assert_served(broker: BrokerProcess) -> None:
    """Let a new worker get every seat and return it."""

    async def story() -> None:
        client = await connect_broker(broker.path, broker.token, fresh_name())
        leases = [await client.acquire(LeaseRequest(n, "m")) for n in range(3)]
        for lease in leases:
            client.release(lease, "ok")
        await client.status()
        await client.close()

    play(story())
