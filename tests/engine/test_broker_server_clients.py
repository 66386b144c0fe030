"""Clients of the broker's process: honest ones and dead ones."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.broker import wire
from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.broker.blocking_client import BlockingBrokerClient
from pytest_ultrapar.broker.client import connect_broker
from pytest_ultrapar.broker.interface import acquire_lease
from pytest_ultrapar.broker.process import BrokerDirectory, BrokerProcess
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.errors import ConfigError, NoLaneError
from tests.engine.broker_at_work import PATIENCE_S, POOL, play, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A worker that takes three leases, reports them and hangs.
HOLDER = """
import asyncio, sys
from pytest_ultrapar.broker.client import connect_broker
from pytest_ultrapar.broker.protocol import LeaseRequest

async def main():
    client = await connect_broker(sys.argv[1], sys.stdin.readline().strip(), "holder")
    for n in range(3):
        await client.acquire(LeaseRequest(n, "m", opens=True, case_id=str(n)))
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running(tmp_path) as process:
        yield process


def test_clients_share_the_seats(broker):
    async def story() -> None:
        clients = [await connect_broker(broker.path, broker.token, f"gw{n}") for n in range(3)]
        in_flight = peak = 0

        async def one(n: int) -> None:
            nonlocal in_flight, peak
            client = clients[n % 3]
            request = LeaseRequest(n, "m", opens=True, case_id=str(n))
            lease = await acquire_lease(client, request)
            in_flight += 1
            peak = max(peak, in_flight)
            await asyncio.sleep(0)
            in_flight -= 1
            client.release(lease, "ok")
            client.episode_ended(str(n))

        await asyncio.gather(*(one(n) for n in range(300)))
        statuses = [await client.status() for client in clients]
        assert peak <= 3
        assert statuses[-1].ended_episodes == 300
        assert (statuses[-1].in_flight, statuses[-1].open_episodes) == (0, 0)
        for client in clients:
            await client.close()

    play(story())


def test_killed_client_returns_its_leases(broker):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(broker.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    holder.stdin.write(broker.token + "\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "held\n"

    async def story() -> None:
        heir = await connect_broker(broker.path, broker.token, "heir")
        futures = [heir.acquire(LeaseRequest(n, "m")) for n in range(3)]
        status = await heir.status()
        assert (status.in_flight, status.waiting, status.open_episodes) == (3, 3, 3)
        os.kill(holder.pid, signal.SIGKILL)
        await asyncio.gather(*futures)
        status = await heir.status()
        assert (status.in_flight, status.open_episodes) == (3, 0)
        assert status.lanes[0].outcomes == {"lost": 3}
        await heir.close()

    try:
        play(story())
    finally:
        holder.kill()
        holder.wait(PATIENCE_S)
        holder.stdin.close()
        holder.stdout.close()


def test_cancelled_request_is_withdrawn_or_its_lease_returned(broker):
    async def story() -> None:
        client = await connect_broker(broker.path, broker.token, "gw0")
        held = [await client.acquire(LeaseRequest(n, "m")) for n in range(3)]
        waiting = [client.acquire(LeaseRequest(n, "m")) for n in range(10, 20)]
        await client.status()
        # Returns and cancellations cross: some grants are on the way to cancelled futures.
        for lease in held:
            client.release(lease, "ok")
        for future in waiting:
            future.cancel()
        status = await client.status()
        while status.in_flight or status.waiting:
            status = await client.status()
        assert await client.acquire(LeaseRequest(30, "m"))
        await client.close()

    play(story())


def test_refusal_reaches_the_client(broker):
    async def story() -> None:
        client = await connect_broker(broker.path, broker.token, "gw0")
        with pytest.raises(NoLaneError, match="no lane for the model 'x'; it has lanes for m, n"):
            await client.acquire(LeaseRequest(1, "x"))
        lease = await client.acquire(LeaseRequest(2, "m"))
        client.release(lease, "auth")
        with pytest.raises(NoLaneError, match="key p/k0 was refused"):
            await client.acquire(LeaseRequest(3, "m"))
        await client.close()

    play(story())


def test_controller_assigns_lanes_and_workers_use_them(broker):
    groups = (Group("one", ("a",)), Group("two", ("b",), after=("one",)))

    async def story() -> None:
        controller = await asyncio.to_thread(BlockingBrokerClient, broker.path, broker.token)
        await asyncio.to_thread(controller.assign, Assignment(groups=groups))
        worker = await connect_broker(broker.path, broker.token, "gw0")
        late = worker.acquire(LeaseRequest(1, "m", "two", opens=True, case_id="b"))
        assert (await worker.status()).waiting == 1
        worker.episode_ended("a")
        assert (await late).lane == "p/a/k0"
        with pytest.raises(ConfigError, match="unknown lane 'no'"):
            await asyncio.to_thread(controller.assign, Assignment(home={"gw0": ("no",)}))
        await worker.close()
        controller.close()

    play(story())


def test_lost_broker_fails_all_waiting_requests(tmp_path):
    broker = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(tmp_path))

    async def story() -> None:
        client = await connect_broker(broker.path, broker.token, "gw0")
        leases = [await client.acquire(LeaseRequest(n, "m")) for n in range(3)]
        waiting = client.acquire(LeaseRequest(9, "m"))
        os.kill(broker.pid, signal.SIGKILL)
        for future in (waiting, client.acquire(LeaseRequest(10, "m"))):
            with pytest.raises(ConnectionError, match="the broker is gone"):
                await future
        with pytest.raises(ConnectionError):
            await client.status()
        client.release(leases[0], "ok")
        client.episode_ended("a")
        await client.close()

    try:
        play(story())
    finally:
        broker.stop()


def test_deleted_socket_does_not_affect_connected_clients(broker):
    async def story() -> None:
        client = await connect_broker(broker.path, broker.token, "gw0")
        broker.path.unlink()
        assert await client.acquire(LeaseRequest(1, "m"))
        with pytest.raises(ConnectionError, match="no broker is listening"):
            await connect_broker(broker.path, broker.token, "gw1")
        await client.close()

    play(story())


@pytest.mark.slow
def test_idle_client_whose_loop_runs_sends_heartbeats(broker):
    async def seen(wanted: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        while True:
            signs = watch.signs()
            if wanted(signs):
                return signs
            await asyncio.sleep(0.02)

    watch = BlockingBrokerClient(broker.path, broker.token, name="watch")

    async def story() -> None:
        idle = await connect_broker(broker.path, broker.token, "idle")
        # This client has connected, and its loop never runs again.
        stopped = socket.socket(socket.AF_UNIX)
        stopped.connect(str(broker.path))
        hello = bytearray()
        wire.append_frame(hello, wire.Hello(broker.token, "stopped"))
        stopped.sendall(hello)
        first = await seen(lambda signs: set(signs) == {"idle", "stopped"})
        second = await seen(lambda signs: signs["idle"] > first["idle"])
        third = await seen(lambda signs: signs["idle"] > second["idle"])
        assert first["stopped"] == third["stopped"]
        await idle.close()
        stopped.close()
        await seen(lambda signs: not signs)
        watch.close()

    play(story())
