"""The pools that come with the repository load, and say what their comments promise."""

import re
from collections import Counter
from pathlib import Path

import pytest

from pytest_ultrapar.pool.config import Overrides, load_pool
from pytest_ultrapar.pool.providers import mean_s
from pytest_ultrapar.pool.secret import read_secrets
from tests.broker_play import Play

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
def test_pool_for_measuring_needs_no_account(name):
    pool = example(name)

    assert pool.is_simulated
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


def seats(pool, *models):
    return pool.seats(tuple(lane for model in models for lane in pool.lanes_of(model)))


def in_mode(name, mode, tmp_path):
    """A pool as it is in a rate mode, where only `fixed` can be in force yet."""
    text = (ROOT / "pools" / f"{name}.toml").read_text(encoding="utf-8")
    by_mode = re.compile(r"\{ fixed = ([0-9]+), adaptive = ([0-9]+) \}")
    assert by_mode.search(text)
    path = tmp_path / f"{name}.toml"
    path.write_text(by_mode.sub(rf"\{('fixed', 'adaptive').index(mode) + 1}", text))
    return load(path)


QWENS = tuple(f"qwen2.5-{size}b-instruct" for size in (72, 32, 14, 7, 3))
AZURE_OPEN = ("DeepSeek-V3-0324", "DeepSeek-R1-0528", "Llama-3.3-70B-Instruct")
AZURE_CLOSED = ("gpt-4o-mini", "gpt-5-mini")
IDEALLAB_CLOSED = ("o3-0416-global", "gemini-2.5-flash-06-17", "kimi-k2", "claude_sonnet4")


@pytest.mark.parametrize("name", ["seed000", "seed001", "seed003"])
def test_documents_pool_has_the_documents_models(name):
    pool = example(name)

    assert set(pool.models) == {*AZURE_OPEN, *AZURE_CLOSED, *QWENS, *IDEALLAB_CLOSED}
    for model in AZURE_OPEN:
        assert [lane.instance for lane in pool.lanes_of(model)] == [
            model,
            f"{model}-2",
            f"{model}-3",
        ]
    for model in IDEALLAB_CLOSED:
        assert {lane.key for lane in pool.lanes_of(model)} == {"key0"}
        assert seats(pool, model) == 1
    assert {provider.name: provider.api for provider in pool.providers} == {
        "azure": "azure-openai",
        "ideallab": "openai",
    }


@pytest.mark.parametrize(
    ("mode", "azure_open", "qwen_per_key", "azure_closed"),
    [("fixed", 50, 2, 100), ("adaptive", 100, 5, 200)],
)
def test_seed003_pool_has_that_documents_numbers(
    tmp_path, mode, azure_open, qwen_per_key, azure_closed
):
    pool = in_mode("seed003", mode, tmp_path)

    for model in AZURE_OPEN:
        assert pool.limits[f"azure/{model}-2"].workers == azure_open
        assert seats(pool, model) == 3 * azure_open
    for key in ("key0", "key1", "key2"):
        assert pool.limits[f"ideallab/{key}/qwen"].workers == qwen_per_key
        # Not of seed 003, which sets no QPS: the limit of the provider that seed 002 quotes.
        assert (pool.limits[f"ideallab/{key}"].workers, pool.limits[f"ideallab/{key}"].qps) == (
            None,
            10,
        )
    assert seats(pool, *QWENS) == 3 * qwen_per_key
    assert seats(pool, *QWENS, *IDEALLAB_CLOSED) == 3 * qwen_per_key + 4
    for model in AZURE_CLOSED:
        assert seats(pool, model) == azure_closed
    others = [limit for limit in pool.limits.values() if limit.level != "key"]
    assert {limit.qps for limit in others} == {None}


@pytest.mark.parametrize(
    ("mode", "qwen_per_key", "qwen_in_all", "closed_qps"),
    [("fixed", 3, 9, 5), ("adaptive", 5, 15, 10)],
)
def test_seed001_pool_has_that_documents_numbers(
    tmp_path, mode, qwen_per_key, qwen_in_all, closed_qps
):
    pool = in_mode("seed001", mode, tmp_path)

    for model in AZURE_OPEN:
        assert pool.limits[f"azure/{model}-3"].qps == 200
        assert seats(pool, model) == 300
    for model in QWENS:
        assert pool.limits[f"ideallab/key1/{model}"].workers == qwen_per_key
        assert seats(pool, model) == qwen_in_all
    for model in IDEALLAB_CLOSED:
        assert pool.limits[f"ideallab/{model}"].qps == closed_qps


@pytest.mark.parametrize(("prompt_types", "workers"), [(1, 200), (2, 400), (3, 600)])
def test_seed001_pool_multiplies_workers_of_closed_azure_models(tmp_path, prompt_types, workers):
    text = (ROOT / "pools" / "seed001.toml").read_text(encoding="utf-8")
    assert text.count("\nprompt_types = 1\n") == 1
    path = tmp_path / "seed001.toml"
    path.write_text(text.replace("\nprompt_types = 1\n", f"\nprompt_types = {prompt_types}\n"))
    pool = load(path)

    assert {seats(pool, model) for model in AZURE_CLOSED} == {workers}
    assert {seats(pool, model) for model in AZURE_OPEN} == {300}
    assert {seats(pool, model) for model in IDEALLAB_CLOSED} == {1}


def test_seed000_pool_has_that_documents_numbers():
    pool = example("seed000")
    limits = {name: (limit.workers, limit.qps) for name, limit in pool.limits.items()}

    # The document's load of phase 5.2 counts the dead third key as well.
    assert [limits[f"ideallab/key{k}"] for k in range(3)] == [(None, 5)] * 3
    assert [limits[f"ideallab/key{k}/qwen"] for k in range(3)] == [(1, None)] * 3
    assert seats(pool, *QWENS) == 3
    assert seats(pool, *QWENS, *IDEALLAB_CLOSED) == 3 + 4
    for model in AZURE_OPEN:
        assert {limits[f"azure/{lane.instance}"] for lane in pool.lanes_of(model)} == {(100, 200)}
        assert seats(pool, model) == 300
    assert {limits[f"azure/{model}"] for model in AZURE_CLOSED} == {(200, 400)}
    assert {limits[f"ideallab/{model}"] for model in IDEALLAB_CLOSED} == {(1, 5)}


@pytest.mark.parametrize("name", ["seed000", "seed001", "seed003"])
def test_closed_models_and_qwens_take_no_seats_from_each_other(name):
    pool = example(name)
    path_of = {
        model: {
            limit
            for lane in pool.lanes_of(model)
            for limit in lane.limits
            if pool.limits[limit].workers is not None
        }
        for model in (*QWENS, *IDEALLAB_CLOSED)
    }

    for closed in IDEALLAB_CLOSED:
        others = [limits for model, limits in path_of.items() if model != closed]
        assert path_of[closed].isdisjoint(set().union(*others))


@pytest.mark.parametrize(("name", "n_qwen"), [("seed000", 3), ("seed003", 6)])
def test_slow_closed_models_hold_no_seat_of_the_qwens(name, n_qwen):
    play = Play(example(name))
    for model in (*IDEALLAB_CLOSED, *QWENS):
        for _ in range(10):
            play.ask(model=model)
    # Nobody answers; long enough for every rate to let more pass.
    play.wait(60)
    held = Counter(lease.lane.split("/")[1] for lease in play.leases.values())

    assert {model: held.pop(model) for model in IDEALLAB_CLOSED} == dict.fromkeys(
        IDEALLAB_CLOSED, 1
    )
    assert held.total() == n_qwen


@pytest.mark.parametrize("name", ["seed000", "seed001", "seed003"])
def test_documents_pool_has_dated_prices_and_latencies(name):
    models = [model for provider in example(name).providers for model in provider.models]
    text = (ROOT / "pools" / f"{name}.toml").read_text(encoding="utf-8")

    unpriced = [one.name for one in models if one.price_per_mtok_in is None]
    assert unpriced == [one.name for one in models if one.price_per_mtok_out is None]
    assert unpriced == ["qwen2.5-3b-instruct"]
    assert "No list price was found for qwen2.5-3b-instruct" in text
    silent = [one.name for one in models if one.latency_hint_s is None]
    assert silent == ["gpt-5-mini", "kimi-k2"]
    assert "None was found for gpt-5-mini and kimi-k2" in text
    assert "in November 2026" in text


def test_documents_pools_agree_on_prices_and_latencies():
    by_pool = [
        {
            model.name: (model.price_per_mtok_in, model.price_per_mtok_out, model.latency_hint_s)
            for provider in example(name).providers
            for model in provider.models
        }
        for name in ("seed000", "seed001", "seed003")
    ]
    assert by_pool[0] == by_pool[1] == by_pool[2]


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


@pytest.mark.parametrize("path", [QUICK_START, *EXAMPLES], ids=lambda path: path.stem)
def test_example_says_in_comments_what_it_is_for(path):
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("name", ["seed000", "seed001", "seed003", "vllm"])
def test_every_number_of_a_documents_pool_says_which_seed_it_comes_from(name):
    blocks = (ROOT / "pools" / f"{name}.toml").read_text(encoding="utf-8").split("\n\n")
    explained = False
    for block in blocks:
        if block.startswith("[[provider]]"):
            explained = False
        explained = explained or bool(re.search("#.*[Ss]eed 00", block))
        if re.search("workers|qps", re.sub("#.*", "", block)):
            assert explained, block
