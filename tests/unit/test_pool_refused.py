"""What no pool file may say: literal keys, contradictions, nesting without end."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, load_pool
from tests.unit.pool_texts import real, simulated, without_schema

REFUSED = [
    pytest.param(
        "schema = 1\n" + ".".join("a" * 200) + " = 1",
        "is nested more than 8 levels deep (at a.a.a.a.a.a.a.a.a)",
        id="deep2",
    ),
    pytest.param("schema = 1" + "0" * 5000, "holds a number that is too long", id="long"),
    pytest.param(
        simulated(keys='[{ name = "k", api_key = "sk-canary" }]'),
        (
            "provider[0].keys[0].api_key is refused: a secret never stands in the file; put "
            'it into an environment variable and name that variable: env = "MY_API_KEY"'
        ),
        id="litkey",
    ),
    pytest.param(
        simulated('token = "sk-canary"'),
        (
            "provider[0].token is refused: a secret never stands in the file; put it into an "
            'environment variable and name that variable: env = "MY_API_KEY"'
        ),
        id="litkey2",
    ),
    pytest.param(
        simulated(keys='[{ name = "k", env = "sk-canary" }]'),
        (
            "provider[0].keys[0].env must be the name of an environment variable, made of "
            "A-Z, 0-9 and _ (its value is not shown, since it may be a secret; a literal key "
            "is refused)"
        ),
        id="litkey3",
    ),
    pytest.param(
        simulated(keys='[{ name = "k", env = "0123456789abcdef0123456789abcdef" }]'),
        (
            "provider[0].keys[0].env must be the name of an environment variable, made of "
            "A-Z, 0-9 and _ (its value is not shown, since it may be a secret; a literal key "
            "is refused)"
        ),
        id="litkey4",
    ),
    pytest.param(
        simulated('key = "sk-canary"'),
        (
            "provider[0].key is refused: a secret never stands in the file; put it into an "
            'environment variable and name that variable: env = "MY_API_KEY"'
        ),
        id="litkey5",
    ),
    pytest.param(
        simulated('secret = "sk-canary"'),
        (
            "provider[0].secret is refused: a secret never stands in the file; put it into "
            'an environment variable and name that variable: env = "MY_API_KEY"'
        ),
        id="litkey6",
    ),
    pytest.param(
        simulated(keys='[{ name = "k", env = "" }]'),
        (
            "provider[0].keys[0].env must be the name of an environment variable (got an "
            "empty string)"
        ),
        id="envempty",
    ),
    pytest.param(
        simulated(keys='[{ name = "k", env = 5 }]'),
        ("provider[0].keys[0].env must be the name of an environment variable (got an integer)"),
        id="envnum",
    ),
    pytest.param(
        simulated('rate_mode = "fast"'),
        'provider[0].rate_mode must be "fixed" or "adaptive" (got "fast")',
        id="providermode",
    ),
    pytest.param(
        simulated("per_key = { workers = { fixed = 2 } }", top='[pool]\nrate_mode = "adaptive"'),
        "provider[0].per_key.workers.adaptive is missing: adaptive mode needs a value of its own",
        id="noadaptive",
    ),
    pytest.param(
        simulated("per_key = { workers = { fixed = 9, adaptive = 5 } }"),
        (
            "provider[0].per_key.workers.adaptive = 5 contradicts provider[0].per_key.workers.fixed"
            " = 9: the ceiling of adaptive mode must not be below what fixed mode uses"
        ),
        id="lowceiling",
    ),
    pytest.param(
        simulated("per_key = { qps = 10, rpm = 5 }"),
        (
            "provider[0].per_key.rpm = 5 contradicts provider[0].per_key.qps = 10: what is allowed"
            " in one second must be allowed in a minute"
        ),
        id="lowrpm",
    ),
    pytest.param(
        simulated("per_key = { rpd = 0.5 }"),
        "provider[0].per_key.rpd must be >= 1 (got 0.5)",
        id="rpd",
    ),
    pytest.param(
        simulated("per_key = { rpd = { fixed = 10.5, adaptive = 20 } }"),
        "provider[0].per_key.rpd.fixed must be a whole number (got 10.5)",
        id="half a request a day",
    ),
    pytest.param(
        simulated(model="per_instance = { tpd = 0 }"),
        "provider[0].model[0].per_instance.tpd must be > 0 (got 0); leave it out for no limit",
        id="tpd",
    ),
    pytest.param(
        simulated('per_key = { rpd = 5, day = "America/Los_Angelos" }'),
        (
            "provider[0].per_key.day must be a time zone of the IANA database, such as "
            '"America/Los_Angeles" or "UTC" (got "America/Los_Angelos"); did you mean '
            '"America/Los_Angeles"?'
        ),
        id="nozone",
    ),
    pytest.param(
        simulated('per_key = { rpd = 5, day = "America" }'),
        (
            "provider[0].per_key.day must be a time zone of the IANA database, such as "
            '"America/Los_Angeles" or "UTC" (got "America")'
        ),
        id="continent",
    ),
    *(
        pytest.param(
            simulated(f'per_key = {{ rpd = 5, day = "{name}" }}'),
            "provider[0].per_key.day must be a time zone of the IANA database, such as "
            f'"America/Los_Angeles" or "UTC" (got "{name}")',
            id=name,
        )
        for name in ("localtime", "posixrules", "Factory")
    ),
    pytest.param(
        simulated('per_key = { rpm = 5, day = "UTC" }'),
        "provider[0].per_key.day means nothing without rpd or tpd in the same table",
        id="dayalone",
    ),
    pytest.param(
        simulated(top='[pool]\nrate_mode = "fast"'),
        'pool.rate_mode must be "fixed" or "adaptive" (got "fast")',
        id="ratemode",
    ),
    pytest.param(
        simulated("per_key = { workers = { adaptive = 5 } }"),
        ("provider[0].per_key.workers.fixed is missing: fixed mode needs a value of its own"),
        id="nofixed",
    ),
    pytest.param(
        simulated("per_key = { qps = {} }"),
        "provider[0].per_key.qps.fixed is missing: fixed mode needs a value of its own",
        id="nofixedq",
    ),
    pytest.param(
        simulated("per_key = { workers = { fixed = 2, adaptive = 0 } }"),
        "provider[0].per_key.workers.adaptive must be >= 1 (got 0)",
        id="badadaptive",
    ),
    pytest.param(
        simulated("per_key = { qps = { fixed = 2, adaptive = nan } }"),
        "provider[0].per_key.qps.adaptive must be a number (got nan)",
        id="badadaptiveq",
    ),
    pytest.param(
        simulated(model="multiply_by_prompt_types = true"),
        (
            "provider[0].model[0].multiply_by_prompt_types = true needs the number of prompt "
            "types: prompt_types in [pool]"
        ),
        id="multiply",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_pool_refused_mistake_is_refused_with_one_clear_message(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refusal:
        load_pool("pool.toml", environ={}, overrides=Overrides())

    assert str(refusal.value) == f"pool.toml: {message}"


CANARY = "sk-canary-0123456789"


@pytest.mark.parametrize(
    "text",
    [
        simulated(f'key = "{CANARY}"'),
        simulated(f'api_key = "{CANARY}'),
        simulated(f'name = "{CANARY}"'),
        simulated(f'workers = "{CANARY}"'),
        simulated(f'latency = {{ kind = "{CANARY}", median_s = 1 }}'),
        simulated(f'"{CANARY}" = 3'),
        simulated(f"{CANARY} = 3"),
        simulated(keys=f'["{CANARY}"]'),
        simulated(keys=f'"{CANARY}"'),
        simulated(keys=f'[{{ name = "{CANARY}" }}]'),
        simulated(keys=f'[{{ name = "k", env = "{CANARY}" }}]'),
        simulated(keys=f'[{{ name = "k", env = {CANARY} }}]'),
        simulated(keys=f'[{{ name = "k", Authorization = "Bearer {CANARY}" }}]'),
        simulated(model=f'keys = ["{CANARY}"]'),
        simulated(model=f'persona = "{CANARY}"'),
        simulated(model=f'ports_env = "{CANARY}"'),
        simulated(name=CANARY) + without_schema(simulated(name=CANARY)),
        real(url=f'base_url = "https://{CANARY}@api.example.com"'),
        real(url=f'base_url = "https://api.example.com?key={CANARY}"'),
        real(url=f'base_url = "https://api.example.com/{CANARY}#"'),
        real(url=f'base_url = "https://me:{CANARY}@api.example.com'),
        real(url=f'base_url = "{CANARY}"'),
    ],
)
def test_refusal_never_shows_a_secret(tmp_path, text):
    path = tmp_path / "pool.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refusal:
        load_pool(path, environ={}, overrides=Overrides())

    assert "canary" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__
