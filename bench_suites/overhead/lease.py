"""What a lease costs: in the process, and over the socket at a rate that fifteen workers offer."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from bench_suites.overhead.workload import ROOT
from pytest_ultrapar.broker.client import connect_broker
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.process import BrokerDirectory, BrokerProcess
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.pool.config import Overrides, load_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_ultrapar.broker.client import BrokerClient
    from pytest_ultrapar.pool.model import Pool

N_WORKERS = 15
PER_S = 2000.0
"""Leases that all workers together ask for."""

MOST_LOCAL_US = 20.0
MOST_SOCKET_US = 150.0
MOST_BROKER_US = 60.0

_N_LOCAL = 20_000
_N_SOCKET = 10_000
_WARM_UP = 1000
_FEW_SLOTS = 15
_N_WAITING = 300


class LeaseCost(msgspec.Struct, frozen=True):
    """A round's figures, in microseconds per lease: asked for, granted and returned.

    Attributes:
        local_us: CPU in the process, while seats are free.
        waiting_us: The same while all seats are taken and others wait, so that each return grants.
        socket_us: From the request to its grant over the socket, mean.
        socket_p99_us: The 99th percentile of that.
        broker_us: CPU of the broker's process.
        per_s: Leases per second that were granted over the socket.
    """

    local_us: float
    waiting_us: float
    socket_us: float
    socket_p99_us: float
    broker_us: float
    per_s: float


def measure_leases(n_rounds: int, *, note: Callable[[str], object]) -> list[LeaseCost]:
    """Measure on the root pool's lanes, without their rates: a rate makes leases wait by intent.

    Args:
        n_rounds: >= 1.
        note: Called with a line before each round.
    """
    pool = _without_rates(load_pool(ROOT / "pool.toml", environ={}, overrides=Overrides()))
    n_seats = pool.seats(pool.lanes)
    assert n_seats is not None
    rounds: list[LeaseCost] = []
    for number in range(n_rounds):
        note(f"lease, round {number + 1} of {n_rounds}")
        waits_us, broker_us, per_s = uvloop.run(_over_the_socket(pool))
        rounds.append(
            LeaseCost(
                local_us=uvloop.run(_in_process(pool, n_slots=_FEW_SLOTS)),
                waiting_us=uvloop.run(_in_process(pool, n_slots=n_seats + _N_WAITING)),
                socket_us=statistics.fmean(waits_us),
                socket_p99_us=statistics.quantiles(waits_us, n=100)[-1],
                broker_us=broker_us,
                per_s=per_s,
            )
        )
    return rounds


def _without_rates(pool: Pool) -> Pool:
    limits = {name: replace(limit, qps=None, rpm=None) for name, limit in pool.limits.items()}
    return replace(pool, limits=limits)


def _requests(pool: Pool) -> Iterator[LeaseRequest]:
    models = itertools.cycle(pool.models)
    for number in itertools.count(1):
        yield LeaseRequest(number, next(models), opens=True, case_id=str(number))


async def _in_process(pool: Pool, *, n_slots: int) -> float:
    broker = LocalBroker(BrokerSettings(pool), MonotonicClock(), asyncio.get_running_loop())
    requests = itertools.islice(_requests(pool), _N_LOCAL)

    async def slot() -> None:
        for request in requests:
            lease = await broker.acquire(request)
            await asyncio.sleep(0)
            broker.release(lease, "ok")
            broker.episode_ended(request.case_id, "")

    started_s = time.process_time()
    await asyncio.gather(*(slot() for _ in range(n_slots)))
    took_s = time.process_time() - started_s
    await broker.close()
    return took_s / _N_LOCAL * 1e6


async def _over_the_socket(pool: Pool) -> tuple[list[float], float, float]:
    with tempfile.TemporaryDirectory(prefix="overhead-") as directory:
        process = BrokerProcess.start(BrokerSettings(pool), BrokerDirectory.make(Path(directory)))
        try:
            clients = [
                await connect_broker(process.path, process.token, f"gw{number}")
                for number in range(N_WORKERS)
            ]
            requests = _requests(pool)
            await _offer(clients, itertools.islice(requests, _WARM_UP))
            cpu_ns = _cpu_ns(process.pid)
            started_s = time.monotonic()
            waits_us = await _offer(clients, itertools.islice(requests, _N_SOCKET))
            per_s = len(waits_us) / (time.monotonic() - started_s)
            broker_us = (_cpu_ns(process.pid) - cpu_ns) / len(waits_us) / 1000
            for client in clients:
                await client.close()
        finally:
            process.stop()
    return waits_us, broker_us, per_s


async def _offer(clients: list[BrokerClient], requests: Iterator[LeaseRequest]) -> list[float]:
    """Ask at even distances, each worker in turn, whether or not the last grant has come."""
    loop = asyncio.get_running_loop()
    waits_us: list[float] = []
    turns = itertools.cycle(clients)
    unanswered: set[asyncio.Task[None]] = set()

    async def one(client: BrokerClient, request: LeaseRequest) -> None:
        asked_ns = time.perf_counter_ns()
        lease = await client.acquire(request)
        waits_us.append((time.perf_counter_ns() - asked_ns) / 1000)
        client.release(lease, "ok")
        client.episode_ended(request.case_id, "")

    due_s = time.monotonic()
    for request in requests:
        due_s += 1 / PER_S
        if (left_s := due_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        task = loop.create_task(one(next(turns), request))
        unanswered.add(task)
        task.add_done_callback(unanswered.discard)
    await asyncio.gather(*unanswered)
    return waits_us


def _cpu_ns(pid: int) -> int:
    """CPU that a process's main thread has had; its one loop runs there."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
