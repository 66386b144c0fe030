"""The pools of the repository load, and have the limits that their comments promise."""

from pathlib import Path

import pytest

from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.providers import mean_s
from pytest_ultrapar.pool.secret import read_secrets

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


@pytest.mark.parametrize(
    "name",
    ["limits", "overhead-episodes", "overhead-many", "overhead-small", "overhead-wide", "seed004"],
)
def test_benchmark_pool_needs_no_account(name):
    pool = example(name)

    assert pool.is_simulated
    assert read_secrets(pool, {}) == {}


def test_quick_start_takes_about_a_minute_at_its_keys_rate():
    pool = load(QUICK_START)
    rates = [pool.limits[f"ideallab/key{k}"].qps for k in range(3)]

    # 350 episodes of about 6.5 requests. The rate binds: the seats allow more.
    assert 40 <= 350 * 6.5 / sum(rates) <= 45
    slowest_s = max(mean_s(model.simulation.latency) for model in pool.providers[1].models)
    assert 5 / slowest_s > rates[0]


def seats(pool, *models):
    return pool.seats(tuple(lane for model in models for lane in pool.lanes_of(model)))


QWENS = tuple(f"qwen2.5-{size}b-instruct" for size in (72, 32, 14, 7, 3))
AZURE_OPEN = ("DeepSeek-V3-0324", "DeepSeek-R1-0528", "Llama-3.3-70B-Instruct")
AZURE_CLOSED = ("gpt-4o-mini", "gpt-5-mini")
IDEALLAB_CLOSED = ("o3-0416-global", "gemini-2.5-flash-06-17", "kimi-k2", "claude_sonnet4")


@pytest.mark.parametrize(
    ("name", "mode", "open_models", "closed_models", "lab", "qwens"),
    [
        # Script seed 000: 3 instances of 100, 200 each, 1 per Qwen key, 1 for each closed model.
        ("seed000", "fixed", 300, 200, 7, 3),
        # Script seed 001: 300 per open model, 15 (fixed mode: 9) per Qwen, 1 per closed model.
        ("seed001", "fixed", 300, 200, 49, 9),
        ("seed001", "adaptive", 300, 200, 79, 15),
        # Script seed 003: 50 x 3 = 150, 100, 2 x 3 = 6, 1 for each closed model.
        ("seed003", "fixed", 150, 100, 10, 6),
        ("seed003", "adaptive", 300, 200, 19, 15),
    ],
)
def test_pools_of_the_scripts_have_the_documented_seats(  # noqa: PLR0917
    name, mode, open_models, closed_models, lab, qwens
):
    path = ROOT / "pools" / f"{name}.toml"
    pool = load_pool(path, environ={"RATE_MODE": mode}, overrides=Overrides())
    assert {seats(pool, model) for model in AZURE_OPEN} == {open_models}
    assert {seats(pool, model) for model in AZURE_CLOSED} == {closed_models}
    assert {seats(pool, model) for model in QWENS} == {qwens}
    assert {seats(pool, model) for model in IDEALLAB_CLOSED} == {1}
    assert seats(pool, *QWENS, *IDEALLAB_CLOSED) == lab


@pytest.mark.parametrize(("n", "workers"), [(1, 200), (2, 400), (3, 600)])
def test_seed001_pool_multiplies_workers_of_closed_azure_models(n, workers):
    path = ROOT / "pools" / "seed001.toml"
    pool = load_pool(path, environ={}, overrides=Overrides(prompt_types=lambda: n))

    assert {seats(pool, model) for model in AZURE_CLOSED} == {workers}
    assert {seats(pool, model) for model in AZURE_OPEN} == {300}
    assert {seats(pool, model) for model in IDEALLAB_CLOSED} == {1}


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


def test_local_servers_learn_of_abandoned_requests():
    (provider,) = example("vllm").providers
    assert all(model.stream for model in provider.models)
