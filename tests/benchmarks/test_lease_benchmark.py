"""Time a lease in-process: 24 lanes, 15 workers, hundreds waiting (no timing assertion)."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Grant, Lease, LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.pool.model import Limit, Pool
from pytest_ultrapar.system.clock import MonotonicClock
from tests.pools import lane, pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N_WORKERS, N_PER_ROUND = 15, 1000
MODELS = [f"m{n}" for n in range(8)]


def lanes_of_24(**rates: float | None) -> Pool:
    """The root pool: three models with three deployments each, and five with three shared keys."""
    limits = [Limit("pool", "pool", 500, **rates)]
    lanes = []
    for model in MODELS[:3]:
        for n in range(3):
            name = f"{model}-{n}"
            limits.append(Limit(name, "instance", 50))
            lanes.append(lane(name, "azure", "pool", name, model=model))
    for n in range(3):
        limits.append(Limit(f"key{n}", "key", 5))
        lanes += [lane(model, f"key{n}", "pool", f"key{n}", model=model) for model in MODELS[3:]]
    return pool(lanes, *limits)


def homes(of: Pool) -> Assignment:
    ids = [one.lane_id for one in of.lanes]
    return Assignment(home={f"gw{n}": tuple(ids[n % 3 :: 3]) for n in range(N_WORKERS)})


def closed_loop(
    of: Pool, assignment: Assignment | None, n_waiting: int, step_s: float
) -> Callable[[], None]:
    """Release and request in rounds on a broker where `n_waiting` requests wait at all times."""
    broker = LaneBroker(of)
    now_s = 0.0
    if assignment is not None:
        broker.assign(assignment, now_s)
    workers = [f"gw{n}" for n in range(N_WORKERS)]
    for worker in workers:
        broker.connect(worker, now_s)
    ids = itertools.count()
    whose = itertools.cycle(workers)
    models = itertools.cycle(MODELS)
    held: deque[Grant] = deque()

    def ask() -> None:
        request_id = next(ids)
        request = LeaseRequest(request_id, next(models), opens=True, case_id=str(request_id))
        book(broker.request(next(whose), request, now_s))

    def book(actions: list[Any]) -> None:
        held.extend(action for action in actions if isinstance(action, Grant))

    for _ in range(465 + n_waiting):
        ask()

    def rounds() -> None:
        nonlocal now_s
        for _ in range(N_PER_ROUND):
            now_s += step_s
            done = held.popleft()
            book(broker.release(done.worker, done.lease.lease_id, "ok", NO_FEEDBACK, now_s))
            ask()
            while not held:
                now_s = broker.next_wake_s() or now_s
                book(broker.tick(now_s))

    return rounds


@pytest.mark.benchmark(group="lease")
@pytest.mark.parametrize("n_waiting", [0, 300, 20_000])
def test_broker_cost_per_1000_leases(benchmark: Any, n_waiting: int) -> None:
    run = closed_loop(lanes_of_24(), None, n_waiting, 1e-4)
    benchmark.pedantic(run, rounds=10, warmup_rounds=1)


@pytest.mark.benchmark(group="lease")
def test_broker_cost_per_1000_leases_with_homes(benchmark: Any) -> None:
    of = lanes_of_24()
    benchmark.pedantic(closed_loop(of, homes(of), 300, 1e-4), rounds=10, warmup_rounds=1)


@pytest.mark.benchmark(group="lease")
def test_broker_cost_per_1000_leases_with_a_rate_on_the_pool(benchmark: Any) -> None:
    run = closed_loop(lanes_of_24(qps=1500.0), None, 300, 1e-5)
    benchmark.pedantic(run, rounds=10, warmup_rounds=1)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner.get_loop()


@pytest.mark.benchmark(group="lease")
def test_local_broker_cost_per_1000_leases(benchmark: Any, loop: asyncio.AbstractEventLoop) -> None:
    async def make() -> LocalBroker:
        return LocalBroker(
            BrokerSettings(lanes_of_24()), MonotonicClock(), asyncio.get_running_loop()
        )

    broker = loop.run_until_complete(make())
    ids = itertools.count()

    async def slot(n: int) -> None:
        for _ in range(N_PER_ROUND // 500):
            request = LeaseRequest(next(ids), MODELS[n % len(MODELS)])
            lease: Lease = await broker.acquire(request)
            await asyncio.sleep(0)
            broker.release(lease, "ok")

    async def rounds() -> None:
        await asyncio.gather(*(slot(n) for n in range(500)))

    benchmark.pedantic(lambda: loop.run_until_complete(rounds()), rounds=10, warmup_rounds=1)
    loop.run_until_complete(broker.close())
