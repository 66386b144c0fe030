"""Timers and failures of a broker, in process and behind a socket."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.broker.event_loop import BrokerLoop
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings, SharesSettings
from pytest_ultrapar.pool.model import Instance, Limit, Model
from pytest_ultrapar.system.clock import HostDayClock, MonotonicClock
from tests.pools import lane, pool
from tests.raw_server import BUSY, RawServer

POOL = pool([lane("a", "k0", "k0")], Limit("k0", "key", qps=50.0))


def test_broker_wakes_when_a_rate_allows_the_next_request():
    async def play():
        granted = []
        is_over = asyncio.Event()

        def carry_out(actions):
            granted.extend(actions)
            if len(granted) == 3:
                is_over.set()

        loop = asyncio.get_running_loop()
        host = BrokerLoop(
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
    # A late timer does not delay the grant after it.
    assert third - first >= 2 / 50


def fail(*_):
    raise ZeroDivisionError


class StandingClock:
    """A clock that stands still, so that the second request waits even on a slow machine."""

    def __init__(self):
        self._s = MonotonicClock().now_s()

    def now_s(self):
        return self._s


async def see_it_fail(settings):
    """Let a broker fail while a request waits for it."""
    loop = asyncio.get_running_loop()
    said = []
    loop.set_exception_handler(lambda _, context: said.append(context["exception"]))
    broker = LocalBroker(settings, StandingClock(), loop)
    lease = await broker.acquire(LeaseRequest(1, "m"))
    with pytest.raises(ConnectionError, match="the broker failed: ZeroDivisionError"):
        await asyncio.wait_for(broker.acquire(LeaseRequest(2, "m")), 120)
    broker.release(lease, "ok")
    await broker.close()
    assert [type(each) for each in said] == [ZeroDivisionError]


def test_waiting_request_fails_if_the_broker_fails(monkeypatch):
    monkeypatch.setattr(LaneBroker, "tick", fail)
    asyncio.run(see_it_fail(BrokerSettings(POOL)))


def test_waiting_request_fails_if_a_load_report_breaks_the_broker(monkeypatch):
    async def answer(peer, _):
        await peer.send(BUSY)
        peer.close()

    monkeypatch.setattr(LaneBroker, "load_reported", fail)
    with RawServer(answer) as server:
        instance = Instance("a", "m", server.url, f"{server.url}/metrics")
        provider = replace(
            POOL.providers[0], models=(Model("m", (instance,)),), rate_mode="adaptive"
        )
        one_seat = {"k0": Limit("k0", "key", 1)}
        asyncio.run(
            see_it_fail(BrokerSettings(replace(POOL, providers=(provider,), limits=one_seat)))
        )


def test_failed_broker_returns_the_daily_units_that_it_reserved_ahead(monkeypatch, tmp_path):
    monkeypatch.setattr(LaneBroker, "tick", fail)
    counted = DailyLimit("k0", "rpd", 60.0, "file", str(tmp_path))
    of_a_day = replace(POOL, limits={"k0": Limit("k0", "key", qps=50.0, rpd=500)})

    asyncio.run(see_it_fail(BrokerSettings(of_a_day, days=(counted,))))

    left = counted.ledger(of_a_day.limits["k0"], HostDayClock(), MonotonicClock().now_s())
    assert left.left(MonotonicClock().now_s()) == 499


class Told:
    """Gives a broker its shares, and counts how often it is closed."""

    def __init__(self, host, config):
        self.host, self.config, self.closed = host, config, 0
        MADE.append(self)

    def start(self, host):
        assert host is self.host
        if self.config == "fails":
            raise ZeroDivisionError
        now_s = host.now_s()
        host.move(lambda: host.broker.share({("k0", "workers"): 1}, now_s + 60.0, now_s))

    def close(self):
        self.closed += 1


MADE: list[Told] = []
SHARED = pool([lane("a", "k0", "k0")], Limit("k0", "key", workers=2))


def shared_settings(config):
    told = SharesSettings(f"{__name__}:Told", config)
    return BrokerSettings(SHARED, shared=(("k0", "workers"),), shares=told)


def test_source_of_shares_starts_and_closes_with_the_broker():
    async def play():
        broker = LocalBroker(shared_settings(""), MonotonicClock(), asyncio.get_running_loop())
        first = broker.acquire(LeaseRequest(1, "m"))
        second = broker.acquire(LeaseRequest(2, "m"))
        assert not first.done()
        lease = await first
        assert not second.done()
        broker.release(lease, "ok")
        await second
        await broker.close()
        await broker.close()

    asyncio.run(play())
    assert MADE.pop().closed == 1


def test_broker_fails_if_the_source_of_its_shares_cannot_start():
    async def play():
        loop = asyncio.get_running_loop()
        said = []
        loop.set_exception_handler(lambda _, context: said.append(context["exception"]))
        broker = LocalBroker(shared_settings("fails"), MonotonicClock(), loop)
        with pytest.raises(ConnectionError, match="the broker failed"):
            await broker.acquire(LeaseRequest(1, "m"))
        await broker.close()
        assert [type(one) for one in said] == [ZeroDivisionError]

    asyncio.run(play())
    assert MADE.pop().closed == 1


def test_settings_with_shares_survive_encoding():
    there = msgspec.json.decode(msgspec.json.encode(shared_settings("x")), type=BrokerSettings)
    assert there == shared_settings("x")
    assert LaneBroker(there.pool, shared=there.shared).holdings(0.0)["k0", "workers"].units == 0
