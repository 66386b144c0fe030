"""The cost of a lease over the socket, at the request rate of fifteen workers."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import uvloop

from benchmarks.overhead.command import ROOT
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows
from pytest_ultrapar.analysis.statistics import quantile
from pytest_ultrapar.broker.client import BrokerClient, connect_broker
from pytest_ultrapar.broker.process import BrokerDirectory, BrokerProcess
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.model import Pool

N_WORKERS = 15
PER_S = 2000.0
"""Leases per second that all workers together request."""

_N_SOCKET = 10_000
_WARM_UP = 1000


def lease_round(options: Options) -> Rows:
    """Measure on the lanes of the root pool, but without rate limits, since these delay leases.

    `socket_us` is the time from the request to the grant. `broker_us` is the CPU of the broker's
    process to grant a lease and take it back.

    In a comparison each checkout uses its own broker, so it runs its own command.

    Raises:
        CommandError: That command failed.
    """
    if options.before:
        return _by_command(options)
    pool = _without_rates(load_pool(ROOT / "pool.toml", environ={}, overrides=Overrides()))
    waits_us, broker_us, per_s = uvloop.run(_over_the_socket(pool, options.cases or _N_SOCKET))
    costs = {
        "socket_us": statistics.fmean(waits_us),
        "socket_p99_us": quantile(sorted(waits_us), 0.99),
        "broker_us": broker_us,
        "per_s": per_s,
    }
    return {"lease": costs}


def _by_command(options: Options) -> Rows:
    checkout = options.checkout
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        found = Path(temporary, "lease.json")
        module = checkout.suite.replace("/", ".")
        argv = ["-m", module, "lease", "--runs", "1", "--json", str(found)]
        checkout.run([checkout.python, *argv])
        rows: Rows = msgspec.json.decode(found.read_bytes())["results"]["lease"][0]
    return rows


def _without_rates(pool: Pool) -> Pool:
    limits = {name: replace(limit, qps=None, rpm=None) for name, limit in pool.limits.items()}
    return replace(pool, limits=limits)


def _requests(pool: Pool) -> Iterator[LeaseRequest]:
    models = itertools.cycle(pool.models)
    for number in itertools.count(1):
        yield LeaseRequest(number, next(models), opens=True, case_id=str(number))


async def _over_the_socket(pool: Pool, n: int) -> tuple[list[float], float, float]:
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
            waits_us = await _offer(clients, itertools.islice(requests, n))
            per_s = len(waits_us) / (time.monotonic() - started_s)
            broker_us = (_cpu_ns(process.pid) - cpu_ns) / len(waits_us) / 1000
            for client in clients:
                await client.close()
        finally:
            process.stop()
    return waits_us, broker_us, per_s


async def _offer(clients: list[BrokerClient], requests: Iterator[LeaseRequest]) -> list[float]:
    """Send requests at equal intervals, each worker in turn, without waiting for earlier grants."""
    loop = asyncio.get_running_loop()
    waits_us: list[float] = []
    turns = itertools.cycle(clients)
    unanswered: set[asyncio.Task[None]] = set()

    async def one(client: BrokerClient, request: LeaseRequest) -> None:
        asked_ns = time.perf_counter_ns()
        lease = await client.acquire(request)
        waits_us.append((time.perf_counter_ns() - asked_ns) / 1000)
        client.release(lease, "ok")
        client.episode_ended(request.case_id)

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
    """The CPU time of a process's main thread, in which its only loop runs."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


LEASE = Measurement(
    lease_round,
    f"lease: {N_WORKERS} workers request {PER_S:g} leases/s on the root pool's lanes without rates",
    (
        Goal("lease", "socket_us", at_most=150.0),
        Goal("lease", "broker_us", at_most=60.0),
    ),
)
