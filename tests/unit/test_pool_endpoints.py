"""Addresses, ports and what belongs to one API only."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, load_pool
from tests.unit.pool_texts import real, simulated

REFUSED = [
    pytest.param(
        real(keys='[{ name = "k" }]'),
        (
            'provider[0].keys[0].env is missing: api = "openai" needs the environment '
            "variable that holds the key"
        ),
        id="noenv",
    ),
    pytest.param(
        real(url=""), 'provider[0].base_url is missing: api = "openai" needs it', id="nobase"
    ),
    pytest.param(
        real(url='base_url = "api.example.com/v1"'),
        "provider[0].base_url must begin with https:// (it names no scheme)",
        id="base1",
    ),
    pytest.param(
        real(url='base_url = "https://me:canary@api.example.com/v1"'),
        (
            "provider[0].base_url must not hold a user name or password: secrets come from "
            "environment variables only"
        ),
        id="base2",
    ),
    pytest.param(
        real(url='base_url = "http://api.example.com/v1"'),
        (
            "provider[0].base_url must begin with https://: http:// would send the key in "
            'the clear, and is allowed to this machine only (got host "api.example.com")'
        ),
        id="base3",
    ),
    pytest.param(
        real(url='base_url = "ftp://api.example.com/v1"'),
        'provider[0].base_url must begin with https:// (got scheme "ftp")',
        id="base4",
    ),
    pytest.param(
        real(url='base_url = "https:///v1"'),
        (
            'provider[0].base_url must be a URL such as "https://api.example.com/v1" (it '
            "names no host)"
        ),
        id="base5",
    ),
    pytest.param(
        real(url='base_url = "https://a.example:99999/v1"'),
        (
            'provider[0].base_url must be a URL such as "https://api.example.com/v1" (its '
            "host or port is malformed)"
        ),
        id="base6",
    ),
    pytest.param(
        real(url='base_url = "https://a.example/v1?key=canary"'),
        "provider[0].base_url must not hold a query or fragment (`?` or `#`)",
        id="base7",
    ),
    pytest.param(
        real(url='base_url = ""'),
        (
            'provider[0].base_url must be a URL such as "https://api.example.com/v1" (got '
            "one that is empty, very long or holds blanks)"
        ),
        id="base8",
    ),
    pytest.param(
        real(url='base_url = "https://169.254.169.254/v1"'),
        'provider[0].base_url must not be a link-local address (got "169.254.169.254")',
        id="base9",
    ),
    pytest.param(
        real(url='base_url = "https://a b.example/v1"'),
        (
            'provider[0].base_url must be a URL such as "https://api.example.com/v1" (got '
            "one that is empty, very long or holds blanks)"
        ),
        id="base10",
    ),
    pytest.param(
        real(url='base_url = "https://[::1/v1"'),
        (
            'provider[0].base_url must be a URL such as "https://api.example.com/v1" (its '
            "host or port is malformed)"
        ),
        id="base11",
    ),
    pytest.param(
        simulated('base_url = "http://127.0.0.1:8000"'),
        (
            'provider[0].base_url is not used by api = "simulated", whose server the run '
            "starts itself; leave it out"
        ),
        id="simbase",
    ),
    pytest.param(
        simulated('api_version = "2024-10-21"'),
        'provider[0].api_version is for api = "azure-openai" only (got api = "simulated")',
        id="simversion",
    ),
    pytest.param(
        real(api="azure-openai"),
        ('provider[0].api_version is missing: api = "azure-openai" needs it, such as "2024-10-21"'),
        id="azversion",
    ),
    pytest.param(
        real(model='persona = "echo"'),
        'provider[0].model[0].persona is for api = "simulated" only (got api = "openai")',
        id="persona_real",
    ),
    pytest.param(
        real('latency = { kind = "fixed", median_s = 1 }'),
        'provider[0].latency is for api = "simulated" only (got api = "openai")',
        id="lat_real",
    ),
    pytest.param(
        real("simulation_seed = 1"),
        'provider[0].simulation_seed is for api = "simulated" only (got api = "openai")',
        id="seed_real",
    ),
    pytest.param(
        simulated(model="ports = [8001]"),
        "provider[0].model[0].ports needs a base_url, which a simulated provider has not",
        id="ports_sim",
    ),
    pytest.param(
        real(model="ports = [0]"), "provider[0].model[0].ports[0] must be >= 1 (got 0)", id="ports0"
    ),
    pytest.param(
        real(model="ports = []"),
        "provider[0].model[0].ports must name at least one port (got none)",
        id="portsempty",
    ),
    pytest.param(
        real(model="ports = [8001, 8001]"),
        "provider[0].model[0].ports[1] names port 8001 a second time",
        id="portsdup",
    ),
    pytest.param(
        real(model='ports = [8001]\ninstances = ["m"]'),
        "provider[0].model[0].instances stands beside ports or ports_env; give only one",
        id="portsinst",
    ),
    pytest.param(
        real(model='ports_env = "VLLM_PORTS"'),
        (
            "provider[0].model[0].ports_env names the environment variable VLLM_PORTS, which "
            'is not set or empty (allowed: a list such as "8001,8002")'
        ),
        id="portsenv",
    ),
    pytest.param(
        real(model='ports_env = "sk-canary"'),
        (
            "provider[0].model[0].ports_env must be the name of an environment variable, "
            "made of A-Z, 0-9 and _ (its value is not shown, since it may be a secret; a "
            "literal key is refused)"
        ),
        id="portsenv2",
    ),
    pytest.param(
        simulated(model='instances = [{ name = "a", base_url = "https://x.example" }]'),
        (
            "provider[0].model[0].instances[0].base_url is not used by a simulated provider; "
            "leave it out"
        ),
        id="instbase",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_pool_endpoints_mistake_is_refused_with_one_clear_message(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refusal:
        load_pool("pool.toml", environ={}, overrides=Overrides())

    assert str(refusal.value) == f"pool.toml: {message}"
