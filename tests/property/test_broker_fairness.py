"""Equal workers get equal shares, and lanes are used evenly: a closed loop on a virtual clock."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import Grant, LeaseRequest
from pytest_ultrapar.pool.model import Limit, Pool
from pytest_ultrapar.testing import BrokerPlay
from tests.examples import examples
from tests.property.broker_judge import check_rate, lane, pool


def jain(shares: list[int]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


class ClosedLoop(BrokerPlay):
    """Workers that always want more: each has `n_slots` one-turn episodes, waiting or in flight."""

    def __init__(
        self, of: Pool, n_slots: dict[str, int], assignment: Assignment, seed: int
    ) -> None:
        super().__init__(LaneBroker(of, seed=seed))
        self.models = itertools.cycle(sorted({one.model for one in of.lanes}))
        self.rng = random.Random(seed)
        self.ids = itertools.count()
        self.by_worker: Counter[str] = Counter()
        self.by_lane: Counter[str] = Counter()
        self.sends: list[float] = []
        self.assign(assignment)
        self.connect(*n_slots)
        # The greedy ones first: order of arrival must not matter in the long run.
        for worker, n in sorted(n_slots.items(), key=lambda pair: -pair[1]):
            for _ in range(n):
                self.ask(worker)

    def ask(self, worker: str) -> None:
        n = next(self.ids)
        request = LeaseRequest(n, next(self.models), opens=True, case_id=str(n))
        self.request(worker, request)

    def book(self, actions: list) -> None:
        for grant in actions:
            self.by_worker[grant.worker] += 1
            self.by_lane[grant.lease.lane] += 1
            self.sends.append(self.now_s)
            self.later(self.rng.lognormvariate(0.0, 0.5), self.answered, grant)

    def run(self, n_leases: int) -> None:
        while sum(self.by_worker.values()) < n_leases:
            assert self.step(), "nothing is in flight and nothing is planned: a dead stop"

    def answered(self, grant: Grant) -> None:
        self.release(grant.worker, grant.lease.lease_id)
        self.ask(grant.worker)


def keys(n_keys: int, n_models: int = 1, **limits: float | None) -> Pool:
    names = [f"k{n}" for n in range(n_keys)]
    models = [f"m{n}" for n in range(n_models)]
    lanes = [lane(model, key, "pool", key, model=model) for key in names for model in models]
    return pool(lanes, Limit("pool", "pool"), *(Limit(key, "key", **limits) for key in names))


@examples(15)
@given(
    n_workers=st.integers(2, 15),
    n_keys=st.integers(1, 4),
    n_models=st.integers(1, 3),
    workers=st.sampled_from([None, 1, 5]),
    seed=st.integers(0, 100),
)
def test_equal_workers_get_equal_shares(n_workers, n_keys, n_models, workers, seed):
    of = keys(n_keys, n_models, workers=workers, qps=None if workers else 20.0)
    n_slots = {f"gw{n}": 12 for n in range(n_workers)}
    loop = ClosedLoop(of, n_slots, Assignment(), seed)
    loop.run(60 * n_workers)
    assert jain([loop.by_worker[worker] for worker in n_slots]) >= 0.95


@pytest.mark.parametrize("greedy", [50, 500])
def test_a_worker_that_asks_for_more_gets_no_more(greedy):
    n_slots = {"gw0": greedy} | {f"gw{n}": 10 for n in range(1, 6)}
    loop = ClosedLoop(keys(2, workers=4), n_slots, Assignment(), seed=1)
    loop.run(3000)
    assert jain([loop.by_worker[worker] for worker in n_slots]) >= 0.99


def test_workers_at_home_on_equal_keys_get_equal_shares_and_stay_there():
    of = keys(3, workers=5)
    home = {f"gw{n}": (of.lanes[n // 5].lane_id,) for n in range(15)}
    loop = ClosedLoop(of, dict.fromkeys(home, 3), Assignment(home), seed=2)
    loop.run(3000)
    assert jain([loop.by_worker[worker] for worker in home]) >= 0.99
    status = loop.broker.status(loop.now_s)
    assert all(one.peak_in_flight == 5 for one in status.lanes)


def test_lanes_with_equal_limits_are_used_evenly():
    loop = ClosedLoop(keys(4, workers=3), {"gw0": 40}, Assignment(), seed=3)
    loop.run(2000)
    assert jain(list(loop.by_lane.values())) >= 0.99


def test_no_model_starves_on_a_shared_key():
    loop = ClosedLoop(keys(1, 5, workers=2, qps=30.0), {"gw0": 25, "gw1": 25}, Assignment(), seed=4)
    loop.run(1000)
    assert jain([loop.by_lane[f"p/m{n}/k0"] for n in range(5)]) >= 0.95
    check_rate(loop.sends, 30.0, 1.0)


def test_idle_homes_are_stolen_until_no_seat_is_free():
    of = keys(3, workers=5)
    home = {f"gw{n}": (of.lanes[n].lane_id,) for n in range(3)}
    loop = ClosedLoop(of, {"gw0": 100, "gw1": 1, "gw2": 1}, Assignment(home), seed=5)
    loop.run(2000)
    status = loop.broker.status(loop.now_s)
    assert status.in_flight == 15
    assert loop.by_worker["gw0"] > 1500
