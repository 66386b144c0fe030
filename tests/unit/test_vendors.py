"""Models named without a pool, and the pool that they make."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.network import host_of, is_local
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.pool.setting_values import Overrides
from pytest_ultrapar.pool.vendors import is_address, named, pool_text, vendors

HERE = Location("--ultrapar-model")
CANARY = "sk-canary-4f9a1c77e2b05d"
WANTED = "openai anthropic google mistral deepseek groq together openrouter xai ollama vllm"


def pool_of(*words, **environ):
    text = pool_text(named(HERE, word, environ) for word in words)
    return load_pool("--ultrapar-model", text=text, environ=environ, overrides=Overrides())


def test_table_contains_all_vendors():
    assert set(WANTED.split()) <= vendors().keys()


@pytest.mark.parametrize("vendor", vendors())
def test_every_vendor_makes_a_pool(vendor):
    name = vendors()[vendor].get("model", "some/model:8b")
    pool = pool_of(f"{vendor}/{name}")
    assert pool.models == (f"{vendor}/{name}",)
    assert pool.rate_mode == "adaptive"
    provider = pool.providers[0]
    instance = provider.models[0].instances[0]
    assert (provider.name, instance.api_name) == (vendor, name)
    assert pool.lanes[0].lane_id.count("/") == 2
    needs_key = not is_local(host_of(provider.base_url))
    assert needs_key is (provider.keys[0].env is not None)


@pytest.mark.parametrize("vendor", vendors())
def test_key_is_read_from_its_usual_variables(vendor):
    variables = vendors()[vendor]["keys"]
    pool = pool_of(f"{vendor}/m", **{variables[-1]: "k"})
    assert pool.providers[0].keys[0].env == variables[-1]
    assert [secret.reveal() for secret in read_secrets(pool, {variables[-1]: "k"}).values()] == [
        "k"
    ]


def test_missing_key_is_refused_in_one_sentence():
    pool = pool_of("openai/m", "xai/m")
    with pytest.raises(ConfigError) as refused:
        read_secrets(pool, {})
    assert str(refused.value) == (
        "--ultrapar-model: openai/m needs the environment variable OPENAI_API_KEY, which is "
        "unset or empty; so is XAI_API_KEY"
    )


def test_models_of_one_vendor_share_a_provider_and_duplicates_are_merged():
    pool = pool_of("openai/a", "vllm/Org/B", "openai/c", "openai/a")
    assert pool.models == ("openai/a", "openai/c", "vllm/Org/B")
    assert [one.lane_id for one in pool.lanes] == [
        "openai/a/key0",
        "openai/c/key0",
        "vllm/Org:B/key0",
    ]


@pytest.mark.parametrize(
    ("word", "model", "api_name", "url"),
    [
        ("http://localhost:8000/v1", "localhost:8000", "*", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "localhost:8000", "*", "http://localhost:8000/v1"),
        ("http://127.0.0.1:80/x/v1", "localhost:80/x", "*", "http://127.0.0.1:80/x/v1"),
        ("http://[::1]:8000/v1#a/B", "localhost:8000/a/B", "a/B", "http://[::1]:8000/v1"),
    ],
)
def test_server_on_this_machine_is_named_by_its_address(word, model, api_name, url):
    pool = pool_of(word)
    assert pool.models == (model,)
    (instance,) = pool.providers[0].models[0].instances
    assert (instance.api_name, instance.base_url) == (api_name, url)


def test_environment_can_change_the_url_of_a_vendor():
    pool = pool_of("openai/m", OPENAI_BASE_URL="https://gateway.example.com/v1")
    assert pool.providers[0].base_url == "https://gateway.example.com/v1"
    with pytest.raises(ConfigError, match="environment: OPENAI_BASE_URL must begin with https"):
        pool_of("openai/m", OPENAI_BASE_URL="http://gateway.example.com/v1")
    # The user's server on another machine needs a key.
    pool = pool_of("vllm/m", VLLM_BASE_URL="https://gpu.example.com/v1")
    assert pool.providers[0].keys[0].env == "VLLM_API_KEY"


def test_limits_are_adaptive_and_only_vendors_have_known_prices():
    for word, prices in (("openai/m", "genai-prices"), ("ollama/m", None)):
        tables = tomllib.loads(pool_text([named(HERE, word, {})]))
        assert tables["pool"].get("prices") == prices
        assert tables["pool"]["rate_mode"] == "adaptive"


REFUSED = {
    "gpt-5-mini": '(got "gpt-5-mini"); the vendors are openai, anthropic, google',
    "openai": '(got "openai"); the vendors are',
    "openai/": "must be VENDOR/NAME",
    "opena/m": '(got "opena/m")',
    "openai/gpt-*": 'must consist of letters, digits and . _ : - (got "gpt-*")',
    "openai/a//m": "must not be empty",
    f"openai/{CANARY}": "a possible secret, which is not shown",
    CANARY: '(got "***")',
    f"http://u:{CANARY}@localhost:1/v1": "must not contain a user name or password",
    f"http://localhost:1/v1?k={CANARY}": "must not contain a query or fragment",
    "https://example.com/v1#m": 'needs no key (got host "example.com"); for a remote server, set',
    "ftp://localhost/v1": "must begin with https://",
    f"http://localhost:1/{CANARY}": "a possible secret, which is not shown",
    "http://localhost:1/<b>/v1": 'must consist of letters, digits and . _ : - (got "<b>")',
    "https://localhost:1/v1": "must end with #NAME, the model's name",
}


@pytest.mark.parametrize("word", REFUSED)
def test_invalid_names_are_refused_without_showing_secrets(word):
    with pytest.raises(ConfigError) as refused:
        named(HERE, word, {})
    assert REFUSED[word] in str(refused.value)
    assert str(refused.value).startswith("--ultrapar-model: must ")
    assert CANARY not in str(refused.value)


def test_page_contains_the_table():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "without-a-pool.md"
    rows = dict(re.findall(r"^\| `(\w+)/NAME` \| (.*) \|$", page.read_text(), re.MULTILINE))
    assert rows.keys() == vendors().keys()
    for vendor, known in vendors().items():
        assert f"`{known['base_url']}`" in rows[vendor]
        assert re.findall(r"[A-Z_]+_KEY", rows[vendor]) == known["keys"]


def test_address_is_distinguished_from_a_name_in_a_pool():
    assert all(map(is_address, ("openai/m", "http://localhost:1/v1")))
    assert not any(map(is_address, ("m", "qwen*", "org/m")))
