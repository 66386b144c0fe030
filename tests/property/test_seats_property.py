"""The seats of several lanes together, by the pool and by a linear program over all its limits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.pool.model import Lane, LaneId, Limit, Pool
from tests.examples import examples
from tests.pools import lane, pool


def lane_of(name: str, *limits: str) -> Lane:
    return Lane(LaneId(name), "p", "m", name, name, limits, 0.0, 1e9)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, dict[str, float]]:
    """A pool of two providers, which may have keys in common, with maxima on some of its limits."""
    limits: dict[str, Limit] = {"pool": Limit("pool", "pool")}
    lanes = []
    for provider in ("p", "q"):
        limits[provider] = Limit(provider, "provider")
        keys = draw(
            st.sets(st.sampled_from(["shared", f"{provider}0", f"{provider}1"]), min_size=1)
        )
        for at in range(draw(st.integers(1, 4))):
            instance, family = f"{provider}/i{at}", f"f{draw(st.integers(0, 1))}"
            limits[instance] = Limit(instance, "instance")
            for key in sorted(draw(st.sets(st.sampled_from(sorted(keys)), min_size=1))):
                key_model, own = f"{provider}/{key}/{family}", f"{instance}/{key} lane"
                limits[key] = Limit(key, "key")
                limits[key_model] = Limit(key_model, "key_model")
                limits[own] = Limit(own, "lane")
                path = ("pool", provider, key, key_model, instance, own)
                # A key that is listed twice has two lanes with all their limits in common.
                lanes += [lane_of(f"{own} {n}", *path) for n in range(draw(st.integers(1, 2)))]
    numbers = st.integers(1, 9) if draw(st.booleans()) else st.floats(0.01, 9.0)
    caps = {name: draw(numbers) for name in sorted(limits) if draw(st.booleans())}
    return pool(lanes, *limits.values()), caps


def best(lanes: tuple[Lane, ...], caps: dict[str, float]) -> float:
    from scipy.optimize import linprog  # 0.3 s in each collection

    table = np.array([[name in lane.limits for lane in lanes] for name in caps], dtype=float)
    return float(-linprog(-np.ones(len(lanes)), table, list(caps.values())).fun)


@examples(200)
@given(case=pools())
def test_seats_of_lanes_together_equal_the_linear_program(case):
    drawn, caps = case
    lanes = tuple(one for one in drawn.lanes if not caps.keys().isdisjoint(one.limits))
    expected = best(lanes, caps) if lanes else 0.0

    found = drawn.most(lanes, caps)

    assert abs(found - expected) <= 1e-7 * max(1.0, expected)
    if all(isinstance(cap, int) for cap in caps.values()):
        assert found == round(expected)
    if len(lanes) < len(drawn.lanes):
        assert drawn.most(drawn.lanes, caps) == float("inf")


def test_seat_that_one_lane_does_not_need_goes_to_another():
    """Two keys of 4 seats, 3 for each model; model a's instance has two, model b's any number."""
    limits = [Limit(key, "key", workers=4) for key in ("k0", "k1")]
    limits += [Limit(f"{key}/{of}", "key_model", workers=3) for key in ("k0", "k1") for of in "ab"]
    limits.append(Limit("a", "instance", workers=2))
    lanes = [
        lane(of, key, key, f"{key}/{of}", *(["a"] if of == "a" else []), model=of)
        for of in "ab"
        for key in ("k0", "k1")
    ]

    assert pool(lanes, *limits).seats(lanes) == 8
