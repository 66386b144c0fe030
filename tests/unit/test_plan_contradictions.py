"""Pools that contradict themselves, and settings of a pool without effect."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.plan.expectations import Expected
from pytest_ultrapar.analysis.plan.run_plan import contradictions
from pytest_ultrapar.analysis.plan.waste import Service, more_seats_than_cases, waste
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from tests.unit.policy_play import ROOT
from tests.unit.pool_texts import real

TWO_S = {"m": Service(2.0)}


@pytest.fixture
def pool(load):
    def made(provider="", *, model="", top="", keys='[{ name = "key0", env = "KEY_0" }]'):
        text = real(provider, model=model, keys=keys).replace("schema = 1", f"schema = 1\n{top}")
        return load(text)

    return made


def episodes(n, *services, model="m"):
    return [Expected(str(k), "s", model, services or (2.0,), None, None, "hint") for k in range(n)]


def refused(pool, services=TWO_S, expected=(), timeout_s=900.0):
    return contradictions(pool, pool.lanes, expected, services, episode_timeout_s=timeout_s)


KEYS = '[{ name = "key0", env = "A" }, { name = "key1", env = "B" }, { name = "key2", env = "C" }]'
INSTANCES = "instances = [" + ", ".join(f'"m-{n}"' for n in range(12)) + "]\n"


def test_seats_that_a_rate_can_never_fill_are_refused_with_the_calculation(pool):
    (said,) = refused(pool("per_key = { workers = 600, qps = 5 }"))
    assert said == (
        "p/key0: 5 requests per second at 2 s each can use only 10 of 600 workers "
        "(5 x 2 = 10 on average); use 10 to 100 workers, or raise the rate"
    )


@pytest.mark.parametrize(
    ("provider", "more"),
    [
        ("per_key = { workers = 600, rpm = 300 }", {}),
        ("per_key = { workers = 600, qps = 50, rpm = 300 }", {}),
        ("per_key = { qps = 5 }", {"model": INSTANCES + "per_instance = { workers = 50 }"}),
        ("per_key = { qps = 5 }", {"top": "[pool]\nworkers = 600\n"}),
        ("qps = 5\nper_key = { workers = 200 }", {"keys": KEYS}),
    ],
)
def test_seats_and_rates_of_different_levels_are_added_up(pool, provider, more):
    said = refused(pool(provider, **more))
    assert any("2 s each can use only 10 of 600 workers" in one for one in said), said


@pytest.mark.parametrize(("workers", "refusals", "warnings"), [(30, 0, 0), (31, 0, 1), (101, 1, 1)])
def test_some_spare_seats_are_accepted_and_many_are_reported(pool, workers, refusals, warnings):
    made = pool(f"per_key = {{ workers = {workers}, qps = 5 }}")
    assert len(refused(made)) == refusals
    assert len(waste(made, made.lanes, TWO_S)) == warnings


def test_requests_and_episodes_longer_than_their_deadlines_are_refused(pool):
    made = pool("timeout_s = 60")
    assert refused(made, {"m": Service(61.0)}) == (
        "p/m: requests take 61 s on average, so timeout_s = 60 cuts them off",
    )
    assert refused(made, {"m": Service(60.0)}, episodes(2, *[60.0] * 20)) == (
        "m: episodes take 1200 s on average, excluding waits, so "
        "--ultrapar-episode-timeout 900 cuts them off",
    )
    assert refused(made, {"m": Service(60.0)}, episodes(2, *[60.0] * 15)) == ()


def test_more_seats_than_cases_are_reported(pool):
    made = pool("per_key = { workers = 300 }")
    assert (*more_seats_than_cases(made, made.lanes, {"m": 20}),) == (
        "more seats than cases (a case uses one seat at a time): "
        "m has 300 seats for 20 cases; reduce workers, or add cases (--ultrapar-repeats)",
    )
    assert (*more_seats_than_cases(made, made.lanes, {"m": 300}),) == ()


@pytest.mark.parametrize(
    "name", ["pool.toml", *sorted(f"pools/{one.name}" for one in (ROOT / "pools").glob("*.toml"))]
)
def test_pools_of_this_repository_are_accepted_at_any_sensible_service_time(name):
    made = load_pool(ROOT / name, environ={}, overrides=Overrides())
    simulated = {
        model.name: model.latency_hint_s
        for provider in made.providers
        for model in provider.models
        if provider.api == "simulated"
    }
    for mean_s in (2.0, 8.0, 60.0):
        services = {model: Service(simulated.get(model) or mean_s) for model in made.models}
        assert refused(made, services) == ()
