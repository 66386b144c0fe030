"""Secrets come from the environment and are never shown."""

import pickle

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.secret import Secret, read_secrets
from tests.unit.pool_texts import real, simulated, without_schema

CANARY = "sk-canary-0123456789"
TWO_KEYS = '[{ name = "key0", env = "KEY_0" }, { name = "key1", env = "KEY_1" }]'
SET = {"KEY_0": "a", "KEY_1": "b"}
NO_KEY = "cannot be an API key: it contains blanks, line breaks or non-ASCII characters"


def test_only_reveal_shows_a_secret():
    secret = Secret(CANARY)

    assert secret.reveal() == CANARY
    shown = [str(secret), repr(secret), f"{secret}", f"{secret!r:>5}", f"{[secret]}", f"{secret:}"]
    assert all("canary" not in text and "***" in text for text in shown)


def test_secret_cannot_be_pickled():
    with pytest.raises(TypeError, match="a Secret cannot be pickled"):
        pickle.dumps(Secret(CANARY))


def test_secrets_are_read_by_provider_and_key(load):
    pool = load(real(keys=TWO_KEYS))

    assert read_secrets(pool, {"KEY_0": "a", "KEY_1": " b\n"}) == {
        ("p", "key0"): Secret("a"),
        ("p", "key1"): Secret("b"),
    }


def test_simulated_provider_and_local_server_need_no_secret(load):
    local = real(url='base_url = "http://localhost:8000"', keys='[{ name = "k" }]')
    keys = '[{ name = "key0", env = "UNSET" }]'

    assert read_secrets(load(local + without_schema(simulated(keys=keys))), {}) == {}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "the environment variable KEY_0, which is unset or empty; so is KEY_1"),
        ({**SET, "KEY_0": " \n"}, "the environment variable KEY_0, which is unset or empty"),
        ({**SET, "KEY_0": f"{CANARY}\r\nX-Header: 1"}, f"KEY_0, whose value {NO_KEY}"),
    ],
)
def test_missing_or_unusable_secret_is_refused(load, environ, message):
    with pytest.raises(ConfigError) as refusal:
        read_secrets(load(real(keys=TWO_KEYS)), environ)

    assert str(refusal.value) == f"pool.toml: provider[0].keys[0].env names {message}"


def test_key_that_serves_no_selected_model_is_not_needed(load):
    other = '[[provider.model]]\nname = "n"\nkeys = ["key1"]'
    pool = load(real(keys=TWO_KEYS, model=f'keys = ["key0"]\n{other}'))

    assert list(read_secrets(pool, {"KEY_0": "a"}, models=["m"])) == [("p", "key0")]
    with pytest.raises(ConfigError, match="KEY_1"):
        read_secrets(pool, {"KEY_0": "a"})
