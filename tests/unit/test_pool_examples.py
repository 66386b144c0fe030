"""The pools that come with the repository load, and say what their comments promise."""

from pathlib import Path

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, check_supported, load_pool
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.pool.simulation import mean_s

ROOT = Path(__file__).parents[2]
QUICK_START = ROOT / "pool.toml"
EXAMPLES = sorted((ROOT / "pools").glob("*.toml"))


def load(path):
    return load_pool(path, environ={}, overrides=Overrides())


def example(name):
    return load(ROOT / "pools" / f"{name}.toml")


@pytest.mark.parametrize("path", [QUICK_START, *EXAMPLES], ids=lambda path: path.stem)
def test_example_loads(path):
    pool = load(path)

    assert pool.lanes
    assert all(pool.lanes_of(model) for model in pool.models)


@pytest.mark.parametrize("name", ["limits", "overhead-episodes", "overhead-small", "overhead-wide"])
def test_pool_for_measuring_needs_no_account(name):
    pool = example(name)

    assert pool.is_simulated
    assert check_supported(pool) is None
    assert read_secrets(pool, {}) == {}


def test_quick_start_is_the_seeds_pool_simulated():
    pool = load(QUICK_START)
    azure, ideallab = pool.providers

    assert {provider.api for provider in pool.providers} == {"simulated"}
    assert read_secrets(pool, {}) == {}
    assert len(pool.models) == 8
    assert [len(model.instances) for model in azure.models] == [3, 3, 3]
    assert azure.models[0].instances[2].name == "DeepSeek-V3-0324-3"
    assert [len(model.instances) for model in ideallab.models] == [1] * 5
    assert [key.name for key in ideallab.keys] == ["key0", "key1", "key2"]
    assert pool.seats(pool.lanes) == 9 * 50 + 3 * 5


def test_quick_start_takes_about_a_minute_by_its_keys_rate():
    pool = load(QUICK_START)
    rates = [pool.limits[f"ideallab/key{k}"].qps for k in range(3)]

    # 350 episodes of about 6.5 requests; the seats would allow more than the rate.
    assert 40 <= 350 * 6.5 / sum(rates) <= 45
    slowest_s = max(mean_s(model.simulation.latency) for model in pool.providers[1].models)
    assert 5 / slowest_s > rates[0]


def test_quick_start_models_differ_in_how_they_act():
    models = {m.name: m.simulation for p in load(QUICK_START).providers for m in p.models}

    assert models["DeepSeek-V3-0324"].persona == "repairing"
    assert models["DeepSeek-V3-0324"].skill == 0.97
    assert models["Llama-3.3-70B-Instruct"].persona == "obedient"
    assert models["qwen2.5-14b-instruct"].persona == "sloppy"
    assert models["qwen2.5-3b-instruct"].skill < models["qwen2.5-7b-instruct"].skill


def test_episodes_pool_has_the_mean_latency_that_it_promises():
    pool = example("overhead-episodes")

    assert mean_s(pool.providers[0].models[0].simulation.latency) == pytest.approx(0.2, abs=1e-6)
    assert pool.seats(pool.lanes) == 60


def test_limits_pool_is_bound_by_rate_and_not_by_seats():
    pool = example("limits")

    assert len(pool.models) == 2
    assert [(limit.workers, limit.qps) for limit in pool.limits.values()] == [(5, 10)] * 3
    assert 5 / pool.providers[0].models[0].simulation.latency.median_s > 10


def test_seed003_pool_has_that_documents_fixed_totals():
    pool = example("seed003")

    def seats(*models):
        return pool.seats(tuple(lane for m in models for lane in pool.lanes_of(m)))

    qwens = [model for model in pool.models if model.startswith("qwen")]
    assert seats("DeepSeek-V3-0324") == seats("Llama-3.3-70B-Instruct") == 150
    assert seats(*qwens) == 6
    assert seats("gpt-4o-mini") == 100
    assert seats("kimi-k2") == 1
    assert {lane.key for lane in pool.lanes_of("kimi-k2")} == {"key0"}
    with pytest.raises(ConfigError, match="is not available yet"):
        check_supported(pool)


def test_seed000_pool_has_two_keys_of_one_seat():
    pool = example("seed000")

    assert pool.seats(pool.lanes_of("qwen2.5-72b-instruct")) == 2
    assert pool.seats(pool.lanes_of("DeepSeek-R1-0528")) == 300
    assert pool.limits["ideallab/key1"].qps == 5


def test_vllm_pool_follows_the_environment_of_seed004():
    path = ROOT / "pools" / "vllm.toml"
    environ = {"VLLM_PORTS": "9001,9002", "MAX_WORKERS": "1"}
    ours = load_pool(path, environ=environ, overrides=Overrides())
    single = load_pool(path, environ={"USE_MULTI_VLLM": "false"}, overrides=Overrides())

    assert len(example("vllm").lanes) == 4
    assert [lane.instance for lane in ours.lanes] == [
        "qwen2.5-7b-instruct:9001",
        "qwen2.5-7b-instruct:9002",
    ]
    assert ours.seats(ours.lanes) == 1
    assert [lane.instance for lane in single.lanes] == ["qwen2.5-7b-instruct:8001"]
    assert read_secrets(ours, {}) == {}
