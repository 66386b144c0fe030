"""What wakes the broker, in process and behind a socket alike."""

from __future__ import annotations

import asyncio

import pytest

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.host import BrokerHost
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.pool.model import Limit
from tests.pools import lane, pool

POOL = pool([lane("a", "k0", "k0")], Limit("k0", "key", qps=50.0))


def test_broker_is_woken_when_a_rate_lets_the_next_request_go():
    async def play():
        granted = []
        is_over = asyncio.Event()

        def carry_out(actions):
            granted.extend(actions)
            if len(granted) == 3:
                is_over.set()

        loop = asyncio.get_running_loop()
        host = BrokerHost(
            BrokerSettings(POOL), MonotonicClock(), loop, carry_out=carry_out, on_broken=print
        )
        host.broker.connect("gw0", host.now_s())
        for number in range(3):
            carry_out(host.broker.request("gw0", LeaseRequest(number, "m"), host.now_s()))
            host.arm()
        await is_over.wait()
        host.close()
        host.close()
        return [each.lease.granted_s for each in granted]

    first, second, third = asyncio.run(play())
    assert second - first >= 1 / 50
    assert third - second >= 1 / 50


def test_broker_that_fails_leaves_nobody_waiting(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(LaneBroker, "tick", fail)

    async def play():
        loop = asyncio.get_running_loop()
        said = []
        loop.set_exception_handler(lambda _, context: said.append(context["exception"]))
        broker = LocalBroker(BrokerSettings(POOL), MonotonicClock(), loop)
        lease = await broker.acquire(LeaseRequest(1, "m"))
        with pytest.raises(ConnectionError, match="the broker failed: ZeroDivisionError"):
            await broker.acquire(LeaseRequest(2, "m"))
        broker.release(lease, "ok")
        await broker.close()
        assert [type(each) for each in said] == [ZeroDivisionError]

    asyncio.run(play())
