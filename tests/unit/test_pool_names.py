"""Names of a pool file: empty, broken, there twice or in nobody's list."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, load_pool
from tests.unit.pool_texts import real, simulated, without_schema

REFUSED = [
    pytest.param(
        simulated() + without_schema(simulated()),
        'provider[1].name must be unique (got "sim", as in provider[0].name)',
        id="dupprov",
    ),
    pytest.param(
        simulated(keys='[{ name = "a" }, { name = "a" }]'),
        ('provider[0].keys[1].name must be unique (got "a", as in provider[0].keys[0].name)'),
        id="dupkey",
    ),
    pytest.param(
        simulated(model='[[provider.model]]\nname = "echo"\ninstances = ["b"]'),
        ('provider[0].model[1].name must be unique (got "echo", as in provider[0].model[0].name)'),
        id="dupmodel",
    ),
    pytest.param(
        simulated(model='instances = ["a", "a"]'),
        (
            'provider[0].model[0].instances[1] must be unique (got "a", as in '
            "provider[0].model[0].instances[0])"
        ),
        id="dupinst",
    ),
    pytest.param(
        simulated(model='[[provider.model]]\nname = "b"\ninstances = ["echo"]'),
        (
            'provider[0].model[1].instances[0] must be unique (got "echo", as in '
            "provider[0].model[0].instances[0])"
        ),
        id="dupinst2",
    ),
    pytest.param(
        simulated(model='instances = ["key0"]'),
        ('provider[0].model[0].instances[0] is called "key0" like a key of the same provider'),
        id="instkey",
    ),
    pytest.param(
        simulated(name="pool"),
        'provider[0].name must not be "pool", the name of the whole pool\'s limit',
        id="namepool",
    ),
    pytest.param(simulated(name=""), "provider[0].name must not be empty", id="nameempty"),
    pytest.param(
        simulated(name="a/b"),
        'provider[0].name must be made of letters, digits and . _ : - (got "a/b")',
        id="nameslash",
    ),
    pytest.param(
        simulated(named="a b"),
        ('provider[0].model[0].name must be made of letters, digits and . _ : - (got "a b")'),
        id="namespace",
    ),
    pytest.param(
        simulated(named="a" * 101),
        "provider[0].model[0].name must have at most 100 characters (got 101)",
        id="namelong",
    ),
    pytest.param(
        simulated(keys='[{ name = "a/b" }]'),
        'provider[0].keys[0].name must be made of letters, digits and . _ : - (got "a/b")',
        id="keyslash",
    ),
    pytest.param(
        simulated(keys='[{ name = "sk-abcdef" }]'),
        (
            "provider[0].keys[0].name looks like a secret (it is not shown); a key's name "
            'stands in all results, so give it one such as "key0"'
        ),
        id="keysecret",
    ),
    pytest.param(
        simulated(keys='[{ name = "0123456789abcdef0123456789abcdef" }]'),
        (
            "provider[0].keys[0].name looks like a secret (it is not shown); a key's name "
            'stands in all results, so give it one such as "key0"'
        ),
        id="keysecret2",
    ),
    pytest.param(
        simulated(model='instances = ["a/b"]'),
        (
            "provider[0].model[0].instances[0] must be made of letters, digits and . _ : - "
            '(got "a/b")'
        ),
        id="instslash",
    ),
    pytest.param(
        simulated(model="instances = []"),
        "provider[0].model[0].instances must name at least one instance (got none)",
        id="instempty",
    ),
    pytest.param(
        simulated(keys="[]"),
        ('provider[0].keys is empty: a provider needs at least one key, { name = "key0", ... }'),
        id="nokeys",
    ),
    pytest.param(
        'schema = 1\n[[provider]]\nname = "p"\napi = "simulated"\nkeys = [{ name = "k" }]',
        "provider[0].model is empty: a provider needs at least one [[provider.model]]",
        id="nomodels",
    ),
    pytest.param(
        real(model='api_name = "a"\ninstances = ["m"]'),
        (
            "provider[0].model[0].api_name stands beside instances: name it in their "
            "entries, { name = ..., api_name = ... }"
        ),
        id="apiname",
    ),
    pytest.param(
        real(model='api_name = "a b"'),
        (
            "provider[0].model[0].api_name must be made of letters, digits and . _ : - / @ + "
            '(got "a b")'
        ),
        id="apiname2",
    ),
    pytest.param(
        real(model='keys = ["key1"]'),
        ('provider[0].model[0].keys[0] must be a key of this provider (got "key1"; allowed: key0)'),
        id="mkeys",
    ),
    pytest.param(
        real(model="keys = []"),
        (
            "provider[0].model[0].keys must name at least one key (got none); leave it out "
            "for all keys"
        ),
        id="mkeys2",
    ),
    pytest.param(
        real(model='keys = ["key0", "key0"]'),
        (
            'provider[0].model[0].keys[1] must be unique (got "key0", as in '
            "provider[0].model[0].keys[0])"
        ),
        id="mkeys3",
    ),
    pytest.param(
        simulated(
            keys="[" + ",".join(f'{{name="k{i}"}}' for i in range(101)) + "]",
            model="instances = [" + ",".join(f'"i{i}"' for i in range(100)) + "]",
        ),
        "provider[0].model[0] brings the pool above 10000 lanes (instances times keys)",
        id="lanes",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_pool_names_mistake_is_refused_with_one_clear_message(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refusal:
        load_pool("pool.toml", environ={}, overrides=Overrides())

    assert str(refusal.value) == f"pool.toml: {message}"


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "-k", ":a"])
@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("provider[0].name", lambda name: simulated(name=name)),
        ("provider[0].keys[0].name", lambda name: simulated(keys=f'[{{ name = "{name}" }}]')),
        ("provider[0].model[0].name", lambda name: simulated(named=name)),
        ("provider[0].model[0].instances[0]", lambda name: real(model=f'instances = ["{name}"]')),
        ("role", lambda name: simulated() + f'[role."{name}"]\nmodel = "echo"'),
    ],
)
def test_name_like_a_folder_or_an_option_is_refused(tmp_path, place, text, name):
    (tmp_path / "pool.toml").write_text(text(name), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"must begin with a letter|has a field called"):
        load_pool(tmp_path / "pool.toml", environ={}, overrides=Overrides())


@pytest.mark.parametrize("name", ["..", ".", "../other", "a/../b", "a/.."])
def test_name_at_an_api_stays_in_its_place(tmp_path, name):
    (tmp_path / "pool.toml").write_text(real(model=f'api_name = "{name}"'), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"api_name must not be \"\.\" or hold"):
        load_pool(tmp_path / "pool.toml", environ={}, overrides=Overrides())


@pytest.mark.parametrize("name", ["org/model", "@cf/meta/x", "/models/x", "./x", "a..b"])
def test_name_at_an_api_may_be_a_path(tmp_path, name):
    (tmp_path / "pool.toml").write_text(real(model=f'api_name = "{name}"'), encoding="utf-8")
    pool = load_pool(tmp_path / "pool.toml", environ={}, overrides=Overrides())
    assert pool.providers[0].models[0].instances[0].api_name == name
