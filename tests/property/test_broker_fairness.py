"""Equal workers get equal shares, and lanes are used evenly: a closed loop on a virtual clock."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.pool.model import Limit, Pool
from tests.broker_play import Play
from tests.examples import examples
from tests.pools import lane, pool
from tests.property.broker_judge import check_rate


def jain(shares: list[int]) -> float:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def closed_loop(
    of: Pool, n_slots: dict[str, int], assignment: Assignment, seed: int, n_leases: int
) -> Play:
    """Workers that always send: each has `n_slots` one-turn episodes, waiting or in flight."""
    models = itertools.cycle(sorted({one.model for one in of.lanes}))
    rng = random.Random(seed)
    cases = itertools.count()

    def ask(worker: str) -> None:
        play.ask(worker, next(models), case_id=str(next(cases)))

    def again(number: int) -> None:
        play.back(number)
        ask(play.whose[number])

    play = Play(
        of,
        lambda number: play.later(rng.lognormvariate(0.0, 0.5), again, number),
        now_s=0.0,
        seed=seed,
    )
    play.assign(assignment)
    play.connect(*n_slots)
    # The greedy workers first: the order of arrival must not matter in the long run.
    for worker, n in sorted(n_slots.items(), key=lambda pair: -pair[1]):
        for _ in range(n):
            ask(worker)
    while len(play.granted) < n_leases:
        assert play.step(), "nothing is in flight and nothing is planned: a deadlock"
    return play


def by_worker(play: Play) -> Counter[str]:
    return Counter(play.whose[number] for number in play.granted)


def by_lane(play: Play) -> Counter[str]:
    return Counter(lease.lane for lease in play.granted.values())


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
    loop = closed_loop(of, n_slots, Assignment(), seed, n_leases=60 * n_workers)
    assert jain([by_worker(loop)[worker] for worker in n_slots]) >= 0.95


@pytest.mark.parametrize("greedy", [50, 500])
def test_a_worker_that_sends_more_requests_gets_no_more(greedy):
    n_slots = {"gw0": greedy} | {f"gw{n}": 10 for n in range(1, 6)}
    loop = closed_loop(keys(2, workers=4), n_slots, Assignment(), seed=1, n_leases=3000)
    assert jain([by_worker(loop)[worker] for worker in n_slots]) >= 0.99


def test_workers_at_home_on_equal_keys_get_equal_shares_and_stay_there():
    of = keys(3, workers=5)
    home = {f"gw{n}": (of.lanes[n // 5].lane_id,) for n in range(15)}
    loop = closed_loop(of, dict.fromkeys(home, 3), Assignment(home), seed=2, n_leases=3000)
    assert jain([by_worker(loop)[worker] for worker in home]) >= 0.99
    status = loop.broker.status(loop.now_s)
    assert all(one.peak_in_flight == 5 for one in status.lanes)


def test_lanes_with_equal_limits_are_used_evenly():
    loop = closed_loop(keys(4, workers=3), {"gw0": 40}, Assignment(), seed=3, n_leases=2000)
    assert jain(list(by_lane(loop).values())) >= 0.99


def test_no_model_starves_on_a_shared_key():
    loop = closed_loop(
        keys(1, 5, workers=2, qps=30.0), {"gw0": 25, "gw1": 25}, Assignment(), seed=4, n_leases=1000
    )
    assert jain([by_lane(loop)[f"p/m{n}/k0"] for n in range(5)]) >= 0.95
    check_rate([one.granted_s for one in loop.granted.values()], 30.0, 1.0)


def test_idle_homes_are_stolen_until_no_seat_is_free():
    of = keys(3, workers=5)
    home = {f"gw{n}": (of.lanes[n].lane_id,) for n in range(3)}
    loop = closed_loop(
        of, {"gw0": 100, "gw1": 1, "gw2": 1}, Assignment(home), seed=5, n_leases=2000
    )
    status = loop.broker.status(loop.now_s)
    assert status.in_flight == 15
    assert by_worker(loop)["gw0"] > 1500
