"""The limits, lanes and paths that the levels of a pool file make."""

import pytest

from pytest_ultrapar.pool.model import Instance, Key, Latency, Limit, Simulation
from tests.unit.pool_texts import real, simulated

EVERY_LEVEL = """
schema = 1
pool = { workers = 500, qps = 90, rpm = 4000 }

[[provider]]
name = "ideallab"
api = "openai"
base_url = "https://api.example.com/v1/"
workers = 40
rpm = 3000
keys = [{ name = "key0", env = "KEY_0" }, { name = "key1", env = "KEY_1", workers = 1, rpm = 30 }]
per_key = { workers = { fixed = 2, adaptive = 5 }, qps = 10 }
per_key_model = { qps = { fixed = 2.5 } }
timeout_s = 60

[[provider.model]]
name = "big"
instances = ["big-1", { name = "big-2", api_name = "org/big@2", base_url = "https://b.example" }]
per_instance = { workers = 50 }
per_lane = { rpm = 100 }
latency_hint_s = 8
price_per_mtok_in = 1
price_per_mtok_out = 2.5

[[provider.model]]
name = "small"
keys = ["key1"]
"""


def test_every_level_makes_its_limit(load):
    limits = load(EVERY_LEVEL).limits

    assert list(limits.values()) == [
        Limit("pool", "pool", 500, 90, 4000),
        Limit("ideallab", "provider", workers=40, rpm=3000),
        Limit("ideallab/key0", "key", 2, 10),
        Limit("ideallab/key1", "key", 1, 10, 30),
        Limit("ideallab/key0/big", "key_model", qps=2.5),
        Limit("ideallab/key1/big", "key_model", qps=2.5),
        Limit("ideallab/big-1", "instance", 50),
        Limit("ideallab/big-1/key0 lane", "lane", rpm=100),
        Limit("ideallab/big-1/key1 lane", "lane", rpm=100),
        Limit("ideallab/big-2", "instance", 50),
        Limit("ideallab/big-2/key0 lane", "lane", rpm=100),
        Limit("ideallab/big-2/key1 lane", "lane", rpm=100),
        Limit("ideallab/key1/small", "key_model", qps=2.5),
    ]
    assert list(limits) == [limit.name for limit in limits.values()]


def test_lanes_are_ordered_by_model_instance_and_key(load):
    lanes = load(EVERY_LEVEL).lanes

    assert [lane.lane_id for lane in lanes] == [
        "ideallab/big-1/key0",
        "ideallab/big-1/key1",
        "ideallab/big-2/key0",
        "ideallab/big-2/key1",
        "ideallab/small/key1",
    ]
    assert [lane.model for lane in lanes] == ["big"] * 4 + ["small"]


def test_path_of_a_lane_goes_from_the_pool_to_the_lane_itself(load):
    lanes = load(EVERY_LEVEL).lanes

    assert lanes[1].limits == (
        "pool",
        "ideallab",
        "ideallab/key1",
        "ideallab/key1/big",
        "ideallab/big-1",
        "ideallab/big-1/key1 lane",
    )
    assert lanes[4].limits == ("pool", "ideallab", "ideallab/key1", "ideallab/key1/small")


def test_level_without_a_number_makes_no_limit(load):
    pool = load(simulated("per_key = {}\nper_key_model = {}", model="per_instance = {}"))

    assert pool.limits == {}
    assert [lane.limits for lane in pool.lanes] == [()]


def test_provider_models_and_instances_match_the_file(load):
    (provider,) = load(EVERY_LEVEL).providers
    big, small = provider.models

    assert (provider.name, provider.api, provider.timeout_s) == ("ideallab", "openai", 60)
    assert provider.base_url == "https://api.example.com/v1"
    assert provider.keys == (Key("key0", "KEY_0"), Key("key1", "KEY_1"))
    assert big.instances == (
        Instance("big-1", "big-1", "https://api.example.com/v1"),
        Instance("big-2", "org/big@2", "https://b.example"),
    )
    assert (big.latency_hint_s, big.price_per_mtok_in, big.price_per_mtok_out) == (8, 1, 2.5)
    assert small.instances == (Instance("small", "small", "https://api.example.com/v1"),)
    assert (small.latency_hint_s, small.price_per_mtok_in) == (None, None)


def test_model_of_two_providers_has_the_lanes_of_both(load):
    second = simulated(name="other", keys='[{ name = "k" }]').removeprefix("schema = 1\n")
    pool = load(simulated() + second)

    assert pool.models == ("echo",)
    assert [lane.lane_id for lane in pool.lanes_of("echo")] == ["sim/echo/key0", "other/echo/k"]


def test_seat_of_a_lost_worker_stays_taken_while_its_request_may_run(load):
    hinted, unhinted = load(EVERY_LEVEL).lanes[0], load(EVERY_LEVEL).lanes[4]

    assert hinted.orphan_grace_s == 16
    assert unhinted.orphan_grace_s == 10
    assert (hinted.longest_grace_s, unhinted.longest_grace_s) == (None, 60)
    of_simulator = load(simulated(model="latency_hint_s = 8")).lanes[0]
    assert (of_simulator.orphan_grace_s, of_simulator.longest_grace_s) == (0.05, None)


def test_azure_api_version_is_read(load):
    text = real('api_version = "2024-10-21"', api="azure-openai")

    assert load(text).providers[0].api_version == "2024-10-21"


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "http://127.0.0.1", "http://[::1]:80"])
def test_server_on_this_machine_needs_no_encryption_or_key(load, url):
    pool = load(real(url=f'base_url = "{url}"', keys='[{ name = "local" }]'))

    assert pool.providers[0].keys == (Key("local", None),)


def test_api_name_of_a_model_is_used_only_in_requests(load):
    (model,) = load(real(model='api_name = "org/m"')).providers[0].models

    assert (model.instances[0].name, model.instances[0].api_name) == ("m", "org/m")


def test_simulation_of_a_model_overrides_its_providers(load):
    text = simulated(
        'latency = { kind = "fixed", median_s = 2 }\nsimulation_seed = 7',
        model='persona = "sloppy"\nskill = 0.5\n'
        "[[provider.model]]\n"
        'name = "b"\n'
        'latency = { kind = "log-normal", median_s = 0.2, sigma = 0.4 }',
    )
    (provider,) = load(text).providers
    first, second = provider.models

    assert provider.simulation_seed == 7
    assert first.simulation == Simulation("sloppy", 0.5, Latency("fixed", 2))
    assert second.simulation == Simulation("echo", 1, Latency("log-normal", 0.2, 0.4))


def test_simulated_model_without_a_hint_uses_its_mean_latency(load):
    text = simulated(model='latency = { kind = "log-normal", median_s = 0.2, sigma = 0.5 }')

    # exp(0.5**2 / 2) = 1.1331
    assert load(text).providers[0].models[0].latency_hint_s == pytest.approx(0.22663, abs=1e-5)
    assert load(simulated(model="latency_hint_s = 3")).providers[0].models[0].latency_hint_s == 3


def test_latency_with_a_knee_varies_only_with_a_sigma(load):
    text = simulated(
        'latency = { kind = "knee", median_s = 2, knee = 8 }',
        model='latency = { kind = "knee", median_s = 1, sigma = 0.5, knee = 64 }\n'
        '[[provider.model]]\nname = "b"',
    )
    first, second = load(text).providers[0].models

    assert first.simulation.latency == Latency("knee", 1, 0.5, 64)
    assert second.simulation.latency == Latency("knee", 2, 0, 8)
