"""The lower bound: as sharp as a linear program, and true of every schedule."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_ultrapar.analysis.plan.load import resources
from pytest_ultrapar.analysis.plan.lower_bound import (
    RequestClass,
    group_similar,
    lower_bound,
    on_paths,
    request_classes,
)
from pytest_ultrapar.pool.model import Limit
from tests.pools import lane
from tests.unit.certified_bound import certify
from tests.unit.policy_play import pool


def on(model, *limits):
    """A lane of this model on these limits."""
    return lane(f"{model}-{'-'.join(limits)}", "k", *limits, model=model)


def random_pool(seed):
    """Providers whose models share keys, and the service times of these models' requests."""
    draw = random.Random(seed)
    lanes, limits, services = [], [], {}
    for provider in range(draw.randint(1, 3)):
        top = f"p{provider}"
        limits.append(
            Limit(top, "provider", draw.choice([None, 200]), rpm=draw.choice([None, 2000]))
        )
        keys = [f"{top}/k{number}" for number in range(draw.randint(1, 4))]
        for key in keys:
            workers, qps = draw.choice([None, 5, 10]), draw.choice([None, 5, 10, 18])
            limits.append(Limit(key, "key", workers, qps))
        for number in range(draw.randint(1, 4)):
            model = f"m{draw.randint(0, 5)}"
            allowed = draw.sample(keys, draw.randint(1, len(keys)))
            for instance in range(draw.randint(1, 3)):
                name = f"{top}/{model}-{number}-{instance}"
                limits.append(Limit(name, "instance", draw.choice([1, 4, 50])))
                lanes += [on(model, top, key, name) for key in allowed]
            services.setdefault(model, [])
    for own in services.values():
        mean, spread = draw.choice([0.2, 1.0, 3.0]), draw.choice([0.1, 0.5])
        own += [mean * draw.lognormvariate(0, spread) for _ in range(draw.choice([50, 300]))]
    return lanes, limits, request_classes(services)


def linear_program_s(lanes, limits, requests):
    """The shortest fractional schedule: any part of a class to any lane of its model."""
    from scipy.optimize import linprog  # the import takes 0.3 s, in every collection
    from scipy.sparse import lil_array

    parts = resources(limits)
    columns = [(k, own) for k, r in enumerate(requests) for own in lanes if own.model == r.model]
    upper = lil_array((len(parts), len(columns) + 1))
    right = np.zeros(len(parts))
    at = {(part.limit, part.kind): row for row, part in enumerate(parts)}
    kinds = {
        name: [part for part in parts if part.limit == name] for name in {p.limit for p in parts}
    }
    for column, (k, own) in enumerate(columns):
        for part in (one for name in own.limits for one in kinds.get(name, ())):
            each = 1.0 if part.is_rate else requests[k].service_s
            upper[at[part.limit, part.kind], column] = requests[k].n * each
    for row, part in enumerate(parts):
        users = {own.model for own in lanes if part.limit in own.limits}
        upper[row, len(columns)] = -part.per_s
        if part.is_rate:
            shortest = min((r.service_s for r in requests if r.model in users), default=0.0)
            right[row] = part.burst - part.per_s * shortest
    equal = lil_array((len(requests), len(columns) + 1))
    for column, (k, _) in enumerate(columns):
        equal[k, column] = 1.0
    cost = np.zeros(len(columns) + 1)
    cost[-1] = 1.0
    ones = np.ones(len(requests))
    found = linprog(cost, upper.tocsr(), right, equal.tocsr(), ones, method="highs")
    assert found.success
    return found.fun


def assert_optimal(lanes, limits, requests):
    """Bound and prices equal the linear program's, and prove the bound without the folding."""
    best = linear_program_s(lanes, limits, requests)
    found = lower_bound(lanes, limits, requests)
    assert found.seconds == pytest.approx(best, rel=1e-6)
    assert certify(lanes, limits, requests, found.prices) == pytest.approx(best, rel=1e-6)
    assert sum(price.share for price in found.prices) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "eights", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))]
)
def test_prices_prove_the_optimum_of_random_pools(eights):
    for seed in range(8 * eights, 8 * eights + 8):
        assert_optimal(*random_pool(seed))


@pytest.mark.parametrize("amounts", [{"workers": 4}, {"qps": 2.0}, {"workers": 3, "rpm": 60.0}])
def test_equal_limits_on_a_lane_bound_like_one_limit(amounts):
    lanes = [on("a", "k", "p"), on("b", "k", "p")]
    limits = [Limit("k", "key", **amounts), Limit("p", "provider", **amounts)]
    requests = request_classes({"a": [1.0] * 100, "b": [0.2] * 30})
    assert_optimal(lanes, limits, requests)
    alone = lower_bound(lanes, limits[:1], requests)
    assert lower_bound(lanes, limits, requests).seconds == pytest.approx(alone.seconds)


def test_no_solver_is_loaded_if_every_request_has_one_route():
    script = """
import sys
from pytest_ultrapar.analysis.plan.lower_bound import RequestClass, lower_bound
from pytest_ultrapar.pool.model import Lane, LaneId, Limit
keys = ["key0", "key1", "key2"]
lanes = [Lane(LaneId(key), "p", "m", "i", key, (key,), 1.0, 1.0) for key in keys]
limits = [Limit(key, "key", workers=5, qps=10.0) for key in keys]
print(lower_bound(lanes, limits, [RequestClass("m", 0.5, 300)]).seconds, "scipy" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["10.0", "False"]


def test_bound_of_seats_is_the_service_time_per_seat():
    lanes = [on("m", "key")]
    found = lower_bound(lanes, [Limit("key", "key", workers=4)], [RequestClass("m", 0.5, 80)])
    assert found.seconds == pytest.approx(10.0)
    assert found.binding == "key (workers)"


def test_bound_of_rates_is_the_last_start_and_its_service():
    lanes = [on("m", "key")]
    limits = [Limit("key", "key", qps=10.0)]
    # Ten immediately, then ten a second: the last of 100 starts after 9 s at the earliest.
    found = lower_bound(lanes, limits, [RequestClass("m", 0.5, 100)])
    assert found.seconds == pytest.approx(9.5)
    assert found.binding == "key (qps)"


def test_longest_episode_bounds_a_run_without_tight_limits():
    lanes = [on("m", "key")]
    requests = [RequestClass("m", 1.0, 4)]
    found = lower_bound(lanes, [Limit("key", "key", workers=50)], requests, longest_s=3.0)
    assert (found.seconds, found.binding) == (3.0, "longest episode")
    free = lower_bound(lanes, [Limit("key", "key")], requests, longest_s=3.0)
    assert (free.seconds, free.binding) == (3.0, "longest episode")


def test_model_without_a_lane_is_refused():
    with pytest.raises(ValueError, match="no lane serves n"):
        lower_bound([on("m", "key")], [Limit("key", "key", workers=1)], [RequestClass("n", 1, 1)])


def repository_instance(name, mean_s, spread):
    """A pool of this repository with 120 requests to each model, short and long in turn."""
    own = pool(name)
    times = [mean_s * (1 + spread * math.sin(number)) for number in range(120)]
    limits = list(own.limits.values())
    # Models differ: the first ones get more requests.
    services = {
        model: [time * (1 + n % 3) for time in times[: 120 - 10 * (n % 5)]]
        for n, model in enumerate(own.models)
    }
    return own.lanes, limits, request_classes(services)


ROOT = Path(__file__).parents[2]
POOLS = ["pool.toml", *(f"pools/{path.name}" for path in sorted(ROOT.glob("pools/*.toml")))]


@pytest.mark.parametrize(("mean_s", "spread"), [(0.2, 0.1), (5.0, 0.9)])
@pytest.mark.parametrize("name", POOLS)
def test_prices_prove_the_optimum_of_every_pool_of_the_repository(name, mean_s, spread):
    assert_optimal(*repository_instance(name, mean_s, spread))


def test_classes_lose_half_a_percent_if_seats_bind():
    draw = random.Random(3)
    services = [2.0 * draw.lognormvariate(0, 0.5) for _ in range(12_200)]
    limits = [Limit("key", "key", workers=50)]
    found = lower_bound([on("m", "key")], limits, request_classes({"m": services}))
    assert 0.994 * sum(services) / 50 <= found.seconds <= sum(services) / 50


def classes(lanes, limits):
    """The number of lane classes, and the size of each class of resources."""
    parts = resources(limits)
    of_lane, of_part = group_similar(lanes, parts, *on_paths(lanes, parts))
    return len({*of_lane}), sorted(np.bincount(of_part))


def test_interchangeable_lanes_and_limits_share_a_class():
    limits = [Limit(f"key{number}", "key", workers=5, qps=10.0) for number in range(3)]
    limits += [Limit(f"i{number}", "instance", workers=2) for number in range(100)]
    lanes = [on("m", f"key{k}", f"i{number}") for number in range(100) for k in range(3)]
    assert classes(lanes, limits) == (1, [3, 3, 100])
    # A key that differs from the others is a class of its own, and its lanes are too.
    odd = [Limit("key0", "key", workers=6, qps=10.0), *limits[1:]]
    assert classes(lanes, odd) == (2, [1, 1, 2, 2, 100])
