from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Instance
from pytest_ultrapar.simulator.address import default_token
from pytest_ultrapar.simulator.refuse_option import parse_refusal, refusal_faults
from pytest_ultrapar.simulator.served_pool import served_providers
from pytest_ultrapar.simulator.server_settings import Settings
from pytest_ultrapar.simulator.url_paths import targets
from tests.simulated_pool import PROVIDER, simulated_pool

POOL = simulated_pool(models={"m": ("i0", "i1"), "n": ("i2",)}, keys=("key0", "key1"))


def test_chosen_tokens_replace_default_ones():
    (provider,) = served_providers(POOL, {f"{PROVIDER}/key0": "chosen"}).values()
    assert provider.keys == {b"chosen": "key0", default_token(PROVIDER, "key1").encode(): "key1"}


def test_keys_with_the_same_token_are_refused_without_showing_it():
    tokens = {f"{PROVIDER}/{key}": "s3cret" for key in ("key0", "key1")}
    with pytest.raises(ConfigError, match="'key0' and 'key1'") as caught:
        served_providers(POOL, tokens)
    assert "s3cret" not in str(caught.value)


def test_instances_with_the_same_api_name_are_refused():
    (provider,) = POOL.providers
    model = replace(
        provider.models[0],
        instances=(Instance("a:8001", "a", ""), Instance("a:8002", "a", "")),
    )
    pool = replace(POOL, lanes=(), providers=(replace(provider, models=(model,)),))
    with pytest.raises(ConfigError, match="'a'"):
        served_providers(pool)


def test_repr_shows_no_token():
    tokens = {f"{PROVIDER}/key0": "s3cret"}
    (provider,) = served_providers(POOL, tokens).values()
    settings = Settings(pool=POOL, tokens=tokens)
    for shown in (provider, settings, *targets([provider]).values()):
        assert "s3cret" not in repr(shown)


@pytest.mark.parametrize("name", ["key9", "i0", "instance:key0", "other/key0", ""])
def test_refusal_of_an_unknown_name_is_refused_with_the_known_names(name):
    with pytest.raises(ConfigError, match="key0, key1") as caught:
        list(refusal_faults(POOL, {name: 401}))
    assert "instance:i2" in str(caught.value)


@pytest.mark.parametrize("status", [200, 399, 600])
def test_refusal_with_a_success_status_is_refused(status):
    with pytest.raises(ConfigError, match="400 to 599"):
        list(refusal_faults(POOL, {"key0": status}))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("key1=401", ("key1", 401)),
        ("instance:a=b=404", ("instance:a=b", 404)),
        ("lab/key0=500", ("lab/key0", 500)),
    ],
)
def test_refusal_is_parsed(text, parsed):
    assert parse_refusal(text) == parsed


@pytest.mark.parametrize("text", ["", "key1", "key1=", "=401", "key1=4x1", "key1=-1", "key1=٤٠١"])
def test_refusal_in_an_invalid_form_is_refused(text):
    with pytest.raises(ValueError, match="KEY=STATUS"):
        parse_refusal(text)
