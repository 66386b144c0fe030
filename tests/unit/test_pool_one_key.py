"""A key that the pool lists more than once has one limit; lanes keep their declared names."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.pool.secret import read_secrets
from tests.unit.pool_texts import API_URL, real, simulated, without_schema

CANARY = "sk-canary-0123456789"
TWICE = '[{ name = "a", env = "A" }, { name = "b", env = "B" }]'
SAME = {"A": CANARY, "B": f" {CANARY}\n", "KEY_0": CANARY}
LOCAL = 'base_url = "http://localhost:8000/v1"'
OF_MODES = "per_key = { workers = { fixed = 2, adaptive = 5 } }"


@pytest.fixture
def load(load):
    def loaded(*texts, environ=SAME):
        return load("schema = 1\n" + "".join(map(without_schema, texts)), environ)

    return loaded


def refusal(load, *texts, **more) -> str:
    with pytest.raises(ConfigError) as refused:
        load(*texts, **more)
    return str(refused.value)


def other(provider="", **fields) -> str:
    return real(provider, **{"name": "q", "keys": '[{ name = "k", env = "B" }]'} | fields)


def paths(pool) -> list[tuple[str, ...]]:
    return [lane.limits for lane in pool.lanes]


def test_key_in_two_providers_has_one_limit(load):
    pool = load(
        real("per_key = { workers = 5 }"),
        other("per_key = { workers = 5 }", url='base_url = "https://API.example.com:443/x"'),
    )
    name = "p/key0 + q/k"
    assert dict(pool.limits) == {name: Limit(name, "key", workers=5)}
    assert paths(pool) == [(name,), (name,)]
    assert [lane.lane_id for lane in pool.lanes] == ["p/m/key0", "q/m/k"]
    assert [lane.key for lane in pool.lanes] == ["key0", "k"]
    assert {lane.key_name for lane in pool.lanes} == {name}
    assert pool.seats(pool.lanes) == 5
    assert [value.name for value in pool.effective if value.value == 5] == [f"{name} workers"]
    assert CANARY not in repr(pool)


def test_numbers_of_both_listings_are_combined(load):
    key = '[{ name = "k", env = "B", qps = 3 }]'
    pool = load(real("per_key = { workers = 5 }"), other("per_key = { rpm = 90 }", keys=key))
    (limit,) = pool.limits.values()
    assert (limit.workers, limit.qps, limit.rpm) == (5, 3, 90)


@pytest.mark.parametrize(
    ("provider", "other_provider", "message"),
    [
        ("per_key = { workers = 5 }", "per_key = { workers = 6 }", "workers = 6 contradicts 5"),
        ("per_key = { qps = 2.5 }", "per_key = { qps = 3 }", "qps = 3 contradicts 2.5"),
        (f'rate_mode = "adaptive"\n{OF_MODES}', OF_MODES, "workers = 2 contradicts 5"),
    ],
)
def test_contradictory_limits_of_one_key_are_refused_with_both_places(
    load, provider, other_provider, message
):
    said = refusal(load, real(provider), other(other_provider))
    why = 'for the same key "p/key0" (same secret, host and port)'
    assert said.startswith(f"pool.toml: provider[1].keys[0].{message} {why}")
    assert CANARY not in said


def test_key_listed_twice_in_a_provider_has_one_limit(load):
    bounds = "per_key = { workers = 5 }\nper_key_model = { workers = 3 }"
    pool = load(real(bounds, keys=TWICE, model="per_lane = { workers = 2 }"))
    assert paths(pool) == [("p/a + p/b", "p/a/m + p/b/m", "p/m/a + p/m/b lane")] * 2
    assert pool.seats(pool.lanes) == 2
    assert len(read_secrets(pool, SAME)) == 2
    said = refusal(load, real(keys=TWICE.replace('"A"', '"A", workers = 1'), provider=bounds))
    assert "provider[0].keys[1].workers = 5 contradicts 1 for the same key" in said


def test_limits_of_key_and_model_stay_separate(load):
    pool = load(
        real("per_key = { qps = 9 }\nper_key_model = { workers = 5 }"),
        other("per_key_model = { workers = 3 }"),
    )
    assert paths(pool) == [("p/key0 + q/k", "p/key0/m"), ("p/key0 + q/k", "q/k/m")]
    assert pool.seats(pool.lanes) == 8


def test_keys_with_different_secrets_hosts_or_ports_are_different(load):
    row = "per_key = { workers = 5 }"
    elsewhere = other(row, url='base_url = "https://api.example.org/v1"')
    assert len(load(real(row), elsewhere).limits) == 2
    assert len(load(real(row), other(row), environ={"KEY_0": "x", "B": "y"}).limits) == 2
    port = other(row, url='base_url = "https://api.example.com:8443/v1"')
    assert len(load(real(row), port).limits) == 2


def test_servers_without_a_secret_are_distinguished_by_address(load):
    none = '[{ name = "none" }]'
    row = "per_key = { workers = 5 }"
    one = real(row, url=LOCAL, keys=none)
    port = other(row, url=LOCAL.replace("8000", "8001"), keys=none)
    path = other(row, url=LOCAL.replace("/v1", "/v2"), keys=none, name="r")
    assert len(load(one, port, path).limits) == 3
    same = other(row, url='base_url = "HTTP://127.0.0.1:8000/v1/"', keys=none)
    assert list(load(one, same).limits) == ["p/none + q/none"]
    said = refusal(load, one, same.replace("workers = 5", "workers = 6"))
    assert "(same address)" in said


def test_key_used_on_two_hosts_keeps_one_limit(load):
    instances = f'instances = ["here", {{ name = "there", base_url = "{API_URL}" }}]'
    row = "per_key = { workers = 5 }"
    two_hosts = real(row, url='base_url = "https://api.example.org/v1"', model=instances)
    assert paths(load(two_hosts)) == [("p/key0",), ("p/key0",)]
    joined = load(two_hosts, other(row))
    assert paths(joined) == [("p/key0 + q/k",)] * 3
    assert joined.seats(joined.lanes) == 5


def test_address_of_an_instance_decides_the_identity_of_its_key(load):
    instance = f'instances = [{{ name = "i", base_url = "{API_URL}" }}]'
    elsewhere = other(
        "per_key = { workers = 5 }",
        url='base_url = "https://api.example.org/v1"',
        model=instance,
    )
    assert list(load(real("per_key = { workers = 5 }"), elsewhere).limits) == ["p/key0 + q/k"]


def test_unused_key_is_not_joined_with_another(load):
    model = 'keys = ["a"]'
    pool = load(real("per_key = { workers = 5 }", keys=TWICE, model=model))
    assert list(pool.limits) == ["p/a", "p/b"]


def test_variable_names_identify_unset_secrets(load):
    row = "per_key = { workers = 5 }"
    same = other(row, keys='[{ name = "k", env = "KEY_0" }]')
    assert list(load(real(row), same, environ={}).limits) == ["p/key0 + q/k"]
    assert list(load(real(row), other(row), environ={}).limits) == ["p/key0", "q/k"]


def test_invalid_value_of_a_key_is_refused_when_keys_are_read(load):
    environ = {"KEY_0": f"{CANARY}\udcff", "B": f"{CANARY}\udcfe"}
    pool = load(real("workers = 5"), other(), environ=environ)
    with pytest.raises(ConfigError, match="names KEY_0, whose value cannot be an API key") as said:
        read_secrets(pool, environ)
    assert CANARY not in str(said.value)


def test_simulated_keys_are_distinguished_by_name(load):
    row = "per_key = { workers = 5 }"
    keys = '[{ name = "a", env = "A" }, { name = "b", env = "A" }]'
    pool = load(simulated(row, keys=keys), simulated(row, name="r", keys=keys))
    assert list(pool.limits) == ["sim/a", "sim/b", "r/a", "r/b"]


def test_long_lists_of_names_are_shortened(load):
    keys = ", ".join(f'{{ name = "k{n}", env = "A" }}' for n in range(5))
    pool = load(real("per_key = { workers = 5 }", keys=f"[{keys}]"))
    assert list(pool.limits) == ["p/k0 + p/k1 + p/k2 + 2 more"]


ADDRESSES = (
    "http://localhost:8000/v1",
    "HTTP://127.0.0.1:8000/v1/",
    "http://[::1]:8000/other",
    "http://localhost:8001/v1",
    "https://api.example.com:443/v1",
)
SECRETS = {"A": CANARY, "B": CANARY, "OTHER": "another"}
addresses = st.sampled_from(ADDRESSES)
entries = st.lists(st.sampled_from(["A", "B", "OTHER", None]), min_size=1, max_size=3)
providers = st.tuples(entries, st.lists(addresses, min_size=1, max_size=2))


@given(st.lists(providers, min_size=1, max_size=3))
def test_lanes_share_a_limit_exactly_if_their_keys_are_the_same(tmp_path_factory, drawn):
    text, ours = "schema = 1\n", []
    for p, (variables, urls) in enumerate(drawn):
        named = [("" if env is None else f', env = "{env}"') for env in variables]
        keys = ", ".join(f'{{ name = "k{n}"{env} }}' for n, env in enumerate(named))
        instances = ", ".join(f'{{ name = "i{n}", base_url = "{u}" }}' for n, u in enumerate(urls))
        text += without_schema(
            real(
                "per_key = { workers = 5 }",
                name=f"p{p}",
                keys=f"[{keys}]",
                url='base_url = "http://localhost:9/"',
                model=f"instances = [{instances}]",
            )
        )
        for k, env in enumerate(variables):
            secret = "" if env is None else SECRETS[env]
            ours.append((f"p{p}/k{k}", {key_identity(url, secret) for url in urls}))
    path = tmp_path_factory.mktemp("drawn") / "pool.toml"
    path.write_text(text)
    pool = load_pool(path, environ=SECRETS, overrides=Overrides())

    # Brute force: merge until nothing changes.
    groups = [({name}, set(identities)) for name, identities in ours]
    while (pair := _meeting(groups)) is not None:
        (names, identities), (more, others) = pair
        groups = [group for group in groups if group not in pair]
        groups.append((names | more, identities | others))
    expected = {frozenset(names) for names, _ in groups}
    found: dict[str, set[str]] = {}
    for lane in pool.lanes:
        (row,) = lane.limits
        found.setdefault(row, set()).add(f"{lane.provider}/{lane.key}")
    assert {frozenset(names) for names in found.values()} == expected
    assert pool.seats(pool.lanes) == 5 * len(expected)


def _meeting(groups):
    pairs = itertools.combinations(groups, 2)
    return next(((one, two) for one, two in pairs if one[1] & two[1]), None)
