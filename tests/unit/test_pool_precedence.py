"""Command line overrides environment, file and default, in this order, with origins."""

import pytest

from pytest_ultrapar.pool.model import EffectiveValue, Instance
from pytest_ultrapar.pool.setting_values import Origin, resolve
from pytest_ultrapar.pool.settings import Options
from tests.unit.pool_texts import real, simulated

LOCAL = 'base_url = "http://localhost:1/v1"'


def test_resolve_treats_false_and_zero_as_values():
    falsy = resolve(Options.use_multi_vllm, command_line=None, environment=False, file=True)
    zero = resolve(Options.seed, command_line=0, environment=None, file=5)

    assert falsy == (False, Origin("environment", "USE_MULTI_VLLM"))
    assert zero == (0, Origin("command line", "--ultrapar-seed"))


@pytest.mark.parametrize(
    ("file", "environ", "override", "effective"),
    [
        ("[pool]\nworkers = 9", "8", 7, (7, "command line --ultrapar-max-workers")),
        ("[pool]\nworkers = 9", "8", None, (8, "environment MAX_WORKERS")),
        ("[pool]\nworkers = 9", "", None, (9, "pool.toml")),
        ("", "8", None, (8, "environment MAX_WORKERS")),
    ],
)
def test_max_workers_limits_the_whole_pool(load, file, environ, override, effective):
    pool = load(simulated(top=file), {"MAX_WORKERS": environ}, max_workers=override)

    assert pool.limits["pool"].workers == effective[0]
    assert pool.lanes[0].limits == ("pool",)
    assert EffectiveValue("pool workers", *effective) in pool.effective


@pytest.mark.parametrize(
    ("file", "environ", "override", "origin"),
    [
        ("adaptive", {}, None, "pool.toml"),
        ("fixed", {"RATE_MODE": "adaptive"}, None, "environment RATE_MODE"),
        ("fixed", {"RATE_MODE": "fixed"}, "adaptive", "command line --ultrapar-rate-mode"),
    ],
)
def test_adaptive_mode_applies_from_every_origin(load, file, environ, override, origin):
    text = simulated(
        "per_key = { workers = { fixed = 2, adaptive = 5 } }",
        top=f'[pool]\nrate_mode = "{file}"',
    )
    pool = load(text, environ, rate_mode=override)

    assert pool.rate_mode == "adaptive"
    assert EffectiveValue("rate_mode", "adaptive", origin) in pool.effective
    [limit] = pool.limits.values()
    assert (limit.workers, pool.held[limit.name].workers) == (5, 2)


def test_environment_overrides_the_rate_mode_of_a_provider(load):
    text = simulated('rate_mode = "adaptive"')

    assert load(text).providers[0].rate_mode == "adaptive"
    assert EffectiveValue("sim rate_mode", "adaptive", "pool.toml") in load(text).effective
    assert load(text, {"RATE_MODE": "fixed"}).rate_mode == "fixed"


def test_prefixed_variable_overrides_the_plain_one(load):
    environ = {"MAX_WORKERS": "8", "ULTRAPAR_MAX_WORKERS": "3", "ULTRAPAR_RATE_MODE": "adaptive"}
    pool = load(simulated(), environ)

    own = EffectiveValue("pool workers", 3, "environment ULTRAPAR_MAX_WORKERS")
    assert own in pool.effective
    assert pool.rate_mode == "adaptive"


def test_real_provider_may_configure_its_simulation(load):
    """The run and `ultrapar simulate` read the same file."""
    pool = load(
        real(
            'latency = { kind = "fixed", median_s = 2.0 }\nsimulation_seed = 3',
            model='skill = 0.5\npersona = "sloppy"',
        )
    )

    simulation = pool.providers[0].models[0].simulation
    assert (simulation.latency.median_s, simulation.skill) == (2.0, 0.5)
    assert (simulation.persona, pool.providers[0].simulation_seed) == ("sloppy", 3)
    # A run on the real provider ignores the simulation.
    assert pool.providers[0].models[0].latency_hint_s is None
    plain = load(real())
    assert pool.effective == plain.effective


def test_every_effective_number_is_listed_with_its_origin(load):
    text = simulated(
        "per_key = { workers = 5, qps = 10 }\nsimulation_seed = 3",
        model="skill = 0.5\nlatency_hint_s = 2\nprice_per_mtok_in = 1",
    )

    assert [(e.name, e.value, e.origin) for e in load(text).effective] == [
        ("rate_mode", "fixed", "default"),
        ("sim timeout_s", 150, "default"),
        ("sim simulation_seed", 3, "pool.toml"),
        ("sim/echo latency_hint_s", 2, "pool.toml"),
        ("sim/echo price_per_mtok_in", 1, "pool.toml"),
        ("sim/echo persona", "echo", "default"),
        ("sim/echo skill", 0.5, "pool.toml"),
        ("sim/echo latency kind", "fixed", "default"),
        ("sim/echo latency median_s", 0.1, "default"),
        ("sim/echo latency sigma", 0, "default"),
        ("sim/key0 workers", 5, "pool.toml"),
        ("sim/key0 qps", 10, "pool.toml"),
    ]


FIRST_ONLY = "pool.toml, only the first port because of environment USE_MULTI_VLLM"
PORT_CASES = [
    ("ports = [8001, 8002]", {}, "8001,8002", "pool.toml"),
    ('ports_env = "VLLM_PORTS"', {"VLLM_PORTS": " 3, 4"}, "3,4", "environment VLLM_PORTS"),
    ('ports = [8001]\nports_env = "MY_PORTS"', {"MY_PORTS": "9"}, "9", "environment MY_PORTS"),
    ('ports = [8001]\nports_env = "MY_PORTS"', {"MY_PORTS": ""}, "8001", "pool.toml"),
    ("ports = [8001, 8002]", {"USE_MULTI_VLLM": "false"}, "8001", FIRST_ONLY),
    ("ports = [8001, 8002]", {"USE_MULTI_VLLM": "true"}, "8001,8002", "pool.toml"),
    ("ports = [8001]", {"VLLM_PORTS": "8003"}, "8001", "pool.toml"),
]


@pytest.mark.parametrize(("model", "environ", "ports", "origin"), PORT_CASES)
def test_each_port_is_an_instance_on_the_providers_host(load, model, environ, ports, origin):
    pool = load(real(url=LOCAL, model=model + '\napi_name = "org/m"'), environ)

    assert pool.providers[0].models[0].instances == tuple(
        Instance(f"m:{port}", "org/m", f"http://localhost:{port}/v1") for port in ports.split(",")
    )
    assert EffectiveValue("p/m ports", ports, origin) in pool.effective
    # All ports belong to one server.
    address = EffectiveValue("p/m address", "http://localhost:1/v1", "pool.toml")
    assert address in pool.effective


def test_port_of_an_ipv6_host_stays_outside_its_brackets(load):
    pool = load(real(url='base_url = "http://[::1]/v1"', model="ports = [8001]"))

    assert pool.providers[0].models[0].instances[0].base_url == "http://[::1]:8001/v1"
