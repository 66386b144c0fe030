"""Numbers of a pool file out of their bounds are refused by one message."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, load_pool
from tests.unit.pool_texts import simulated

REFUSED = [
    pytest.param(
        simulated("timeout_s = 0x1" + "0" * 5000),
        "provider[0].timeout_s must be <= 86400 (got a number above 1e18)",
        id="hexlong",
    ),
    pytest.param(
        simulated("per_key = { qps = -5 }"),
        "provider[0].per_key.qps must be > 0 (got -5)",
        id="neg",
    ),
    pytest.param(
        simulated("per_key = { qps = 0 }"),
        "provider[0].per_key.qps must be > 0 (got 0); leave it out for no limit",
        id="zero",
    ),
    pytest.param(
        simulated("per_key = { qps = 1e-9 }"),
        "provider[0].per_key.qps must be >= 1e-06 (got 1e-09)",
        id="tiny",
    ),
    pytest.param(
        simulated("per_key = { qps = nan }"),
        "provider[0].per_key.qps must be a number (got nan)",
        id="nan",
    ),
    pytest.param(
        simulated("per_key = { qps = inf }"),
        "provider[0].per_key.qps must be <= 1000000 (got inf)",
        id="inf",
    ),
    pytest.param(
        simulated("per_key = { qps = 1000001 }"),
        "provider[0].per_key.qps must be <= 1000000 (got 1000001)",
        id="huge",
    ),
    pytest.param(
        simulated("per_key = { workers = 1" + "0" * 400 + " }"),
        "provider[0].per_key.workers must be <= 100000 (got a number above 1e18)",
        id="hugeint",
    ),
    pytest.param(
        simulated("workers = 0"),
        "provider[0].workers must be > 0 (got 0); leave it out for no limit",
        id="w0",
    ),
    pytest.param(simulated("workers = -1"), "provider[0].workers must be >= 1 (got -1)", id="wneg"),
    pytest.param(
        simulated(model="per_instance = { rpm = 0 }"),
        "provider[0].model[0].per_instance.rpm must be > 0 (got 0); leave it out for no limit",
        id="rpm",
    ),
    pytest.param(
        simulated(model="per_lane = { workers = 100001 }"),
        "provider[0].model[0].per_lane.workers must be <= 100000 (got 100001)",
        id="lane",
    ),
    pytest.param(
        simulated(keys='[{ name = "k", workers = 0 }]'),
        "provider[0].keys[0].workers must be > 0 (got 0); leave it out for no limit",
        id="keyover",
    ),
    pytest.param(
        simulated("per_key_model = { qps = -1 }"),
        "provider[0].per_key_model.qps must be > 0 (got -1)",
        id="kmodel",
    ),
    pytest.param(
        simulated(top="[pool]\nworkers = 0"),
        "pool.workers must be > 0 (got 0); leave it out for no limit",
        id="poolw",
    ),
    pytest.param(
        simulated("timeout_s = 86401"),
        "provider[0].timeout_s must be <= 86400 (got 86401)",
        id="timeout",
    ),
    pytest.param(
        simulated("timeout_s = 0"), "provider[0].timeout_s must be > 0 (got 0)", id="timeout0"
    ),
    pytest.param(
        simulated(model="latency_hint_s = 0"),
        "provider[0].model[0].latency_hint_s must be > 0 (got 0)",
        id="hint",
    ),
    pytest.param(
        simulated(model="price_per_mtok_in = -1"),
        "provider[0].model[0].price_per_mtok_in must be >= 0 (got -1)",
        id="price",
    ),
    pytest.param(
        simulated("simulation_seed = -1"),
        "provider[0].simulation_seed must be >= 0 (got -1)",
        id="seed",
    ),
    pytest.param(
        simulated('latency = { kind = "fixed", median_s = -0.1 }'),
        "provider[0].latency.median_s must be >= 0 (got -0.1)",
        id="latneg",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_pool_numbers_mistake_is_refused_with_one_clear_message(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refusal:
        load_pool("pool.toml", environ={}, overrides=Overrides())

    assert str(refusal.value) == f"pool.toml: {message}"
