"""The forecast of random small pools: never below the bound, and the same by both methods."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.plan.forecast import ForecastEpisode, forecast
from pytest_ultrapar.analysis.plan.lower_bound import lower_bound, request_classes
from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from tests.examples import examples

MODELS = ("a", "b", "c")

seats = st.sampled_from([None, 1000]) | st.integers(1, 5) | st.integers(6, 1000)
rates = st.sampled_from([None, ("qps", 2.5), ("qps", 10), ("qps", 200), ("rpm", 90)])
keys = st.integers(1, 3)


def limit_text(name, workers, rate=None):
    said = [("workers", workers)] if workers else []
    numbers = ", ".join(f"{key} = {value}" for key, value in [*said, *([rate] if rate else [])])
    return f"{name} = {{ {numbers} }}\n" if numbers else ""


@st.composite
def pools(draw):
    text = 'schema = 1\n[[provider]]\nname = "p"\napi = "simulated"\nkeys = ['
    text += ", ".join(f'{{ name = "k{number}" }}' for number in range(draw(keys))) + "]\n"
    text += limit_text("per_key", draw(seats), draw(rates))
    text += limit_text("per_key_model", draw(seats))
    text += "".join(f'[[provider.model]]\nname = "{model}"\n' for model in MODELS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pool.toml")
        path.write_text(text)
        return load_pool(path, environ={}, overrides=Overrides())


services = st.sampled_from([0.05, 0.3, 1.0, 7.0])


@st.composite
def runs(draw):
    """Courses, some of them equal and in any order, and groups that follow each other."""
    kinds = draw(
        st.lists(
            st.tuples(
                st.sampled_from(MODELS),
                st.sampled_from(["", "g0", "g1"]),
                st.lists(services, min_size=1, max_size=3).map(tuple),
                st.integers(1, 60) | st.sampled_from([7, 400]),
            ),
            min_size=1,
            max_size=5,
        )
    )
    drawn = [kind[:3] for kind in kinds for _ in range(kind[3])]
    draw(st.randoms(use_true_random=False)).shuffle(drawn)
    courses = [ForecastEpisode(str(number), *one) for number, one in enumerate(drawn)]
    groups = []
    for name in ("g0", "g1"):
        own = tuple(one.case_id for one in courses if one.group == name)
        after = ("g0",) if name == "g1" and draw(st.booleans()) else ()
        groups.append(Group(name, own, after=after, at_once=draw(st.none() | st.integers(1, 3))))
    return courses, Assignment(groups=tuple(groups))


@examples(40)
@given(pools(), runs())
def test_forecast_is_never_below_the_lower_bound(pool, run):
    courses, assignment = run
    own = {}
    for one in courses:
        own.setdefault(one.model, []).extend(one.services_s)
    found = forecast(pool, courses, assignment)
    longest_s = max(sum(one.services_s) for one in courses)
    lanes = [lane for lane in pool.lanes if lane.model in own]
    bound = lower_bound(lanes, pool.limits.values(), request_classes(own), longest_s=longest_s)
    assert found.makespan_s >= bound.seconds - 1e-6
    assert found.refused == ()
    assert sum(load.requests for load in found.lanes.values()) == sum(map(len, own.values()))


@examples(30)
@given(pools(), runs(), st.sampled_from([None, 1, 2]), st.sampled_from([0.0, 0.1]))
def test_forecast_of_one_episode_at_a_time_equals_the_brokers_play(pool, run, n_lanes, between_s):
    """A second, empty group makes the broker play the run instead of summing it up."""
    courses = [ForecastEpisode(one.case_id, one.model, "all", one.services_s, 7) for one in run[0]]
    allowed = [
        lane.lane_id
        for model in MODELS
        for lane in [one for one in pool.lanes if one.model == model][:n_lanes]
    ]
    group = Group("all", tuple(one.case_id for one in courses), tuple(allowed), at_once=1)
    summed, played = (
        forecast(pool, courses, Assignment(groups=groups), between_s=between_s, most_open=1)
        for groups in [(group,), (group, Group("none", ()))]
    )
    assert summed.makespan_s == pytest.approx(played.makespan_s, rel=1e-9)
    assert summed.longest_s == pytest.approx(played.longest_s, rel=1e-9)
    assert (summed.peak_in_flight, summed.refused) == (played.peak_in_flight, played.refused)
    assert set(summed.lanes) == set(played.lanes)
    for lane, load in played.lanes.items():
        assert (summed.lanes[lane].requests, summed.lanes[lane].tokens) == (
            load.requests,
            load.tokens,
        )
        assert summed.lanes[lane].busy_s == pytest.approx(load.busy_s, rel=1e-9)
