"""Time the lower bound of the full plan: 12,200 cases of 6.6 requests on 300 lanes."""

from __future__ import annotations

import random

import pytest

from pytest_ultrapar.analysis.plan.lower_bound import lower_bound, request_classes
from pytest_ultrapar.pool.model import Lane, LaneId, Limit

CASES, TURNS, MODELS = 12_200, 6.6, 8


def lanes():
    return [
        Lane(LaneId(f"{n}/{k}"), "p", f"m{n % MODELS}", f"i{n}", k, (k, f"i{n}"), 1.0, 1.0)
        for n in range(100)
        for k in ("k0", "k1", "k2")
    ]


def limits(draw):
    """The limits of the lanes: all the same without `draw`, all different with it."""
    choose = draw.randint if draw else lambda low, high: (low + high) // 2
    found = [Limit(f"i{n}", "instance", choose(1, 60), choose(5, 50)) for n in range(100)]
    return found + [Limit(f"k{n}", "key", choose(2, 400), choose(20, 200)) for n in range(3)]


@pytest.mark.parametrize("kind", ["alike", "different"])
def test_lower_bound_of_the_full_plan(benchmark, kind):
    draw = random.Random(1)
    made = limits(draw if kind == "different" else None)
    n = round(CASES * TURNS / MODELS)
    services = {
        f"m{model}": [(1 + model % 3) * draw.lognormvariate(0, 0.5) for _ in range(n)]
        for model in range(MODELS)
    }
    found = benchmark.pedantic(
        lambda: lower_bound(lanes(), made, request_classes(services)), rounds=5
    )
    assert found.seconds > 0
