from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Instance, Limit
from pytest_ultrapar.simulator.address import default_token
from pytest_ultrapar.simulator.faults.book import FaultBook
from pytest_ultrapar.simulator.faults.kinds import Error
from pytest_ultrapar.simulator.faults.script import Fault, FaultScript, When
from pytest_ultrapar.simulator.faults.timeline import Timeline, Where
from pytest_ultrapar.simulator.refuse_option import parse_refusal, refusal_faults
from pytest_ultrapar.simulator.route import targets
from pytest_ultrapar.simulator.served import served_providers
from pytest_ultrapar.simulator.server_settings import Settings
from tests.simulated_pool import PROVIDER, simulated_pool

POOL = simulated_pool(models={"m": ("i0", "i1"), "n": ("i2",)}, keys=("key0", "key1"))


def statuses(pool, status_of):
    lanes = served_providers(pool)[PROVIDER].lanes.values()
    script = FaultScript().preceded_by(refusal_faults(pool, status_of))
    book = FaultBook(script, lanes, Timeline())
    taken = {(lane.instance, lane.key): book.decide(lane, 0.0, str) for lane in lanes}
    return {place: fault.effect.status for place, fault in taken.items() if fault is not None}


def test_lanes_of_a_key_share_its_limit():
    pool = simulated_pool(models={"m": ("i0", "i1")}, per_key=Limit("", "key", workers=1))
    lanes = served_providers(pool)[PROVIDER].lanes
    assert lanes["key0", "i0"].path.admit(0.0) is None
    assert lanes["key0", "i1"].path.admit(0.0) is not None


def test_chosen_tokens_go_before_default_ones():
    (provider,) = served_providers(POOL, {(PROVIDER, "key0"): "chosen"}).values()
    assert provider.keys == {b"chosen": "key0", default_token(PROVIDER, "key1").encode(): "key1"}


def test_two_keys_with_one_token_are_refused_without_showing_it():
    tokens = {(PROVIDER, key): "s3cret" for key in ("key0", "key1")}
    with pytest.raises(ConfigError, match="'key0' and 'key1'") as caught:
        served_providers(POOL, tokens)
    assert "s3cret" not in str(caught.value)


def test_two_instances_with_one_api_name_are_refused():
    (provider,) = POOL.providers
    model = replace(
        provider.models[0],
        instances=(Instance("a:8001", "a", ""), Instance("a:8002", "a", "")),
    )
    pool = replace(POOL, lanes=(), providers=(replace(provider, models=(model,)),))
    with pytest.raises(ConfigError, match="'a'"):
        served_providers(pool)


def test_no_token_shows_in_a_repr():
    tokens = {(PROVIDER, "key0"): "s3cret"}
    (provider,) = served_providers(POOL, tokens).values()
    settings = Settings.of(POOL, tokens=tokens, log_path=None, port=0, faults=FaultScript())
    for shown in (provider, settings, *targets([provider]).values()):
        assert "s3cret" not in repr(shown)


def test_settings_survive_the_pipe():
    pool = simulated_pool(per_key=Limit("", "key", workers=2, qps=1.5, rpm=10))
    settings = Settings.of(
        pool,
        tokens={(PROVIDER, "key0"): "t"},
        log_path=Path("x.log"),
        port=8123,
        faults=FaultScript(faults=(Fault("f", Where(key="key0"), When(), Error(401, "", ())),)),
    )
    arrived = msgspec.json.decode(msgspec.json.encode(settings), type=Settings)
    assert arrived == settings
    assert arrived.token_of == {(PROVIDER, "key0"): "t"}
    assert (arrived.pool.providers, arrived.pool.lanes) == (pool.providers, pool.lanes)
    assert dict(arrived.pool.limits) == dict(pool.limits)


@pytest.mark.parametrize("name", ["key1", "lab/key1"])
def test_refusal_of_a_key_takes_all_its_lanes(name):
    assert statuses(POOL, {name: 401}) == {(i, "key1"): 401 for i in ("i0", "i1", "i2")}


@pytest.mark.parametrize("name", ["instance:i2", "instance:lab/i2"])
def test_refusal_of_an_instance_takes_all_its_lanes(name):
    assert statuses(POOL, {name: 404}) == {("i2", key): 404 for key in ("key0", "key1")}


def test_first_refusal_of_a_lane_counts():
    found = statuses(POOL, {"key0": 500, "instance:i0": 404})
    assert found["i0", "key0"] == 500
    assert found["i0", "key1"] == 404


@pytest.mark.parametrize("name", ["key9", "i0", "instance:key0", "other/key0", ""])
def test_refusal_of_nothing_is_refused_with_what_there_is(name):
    with pytest.raises(ConfigError, match="key0, key1") as caught:
        list(refusal_faults(POOL, {name: 401}))
    assert "instance:i2" in str(caught.value)


@pytest.mark.parametrize("status", [200, 399, 600])
def test_refusal_with_a_status_of_no_error_is_refused(status):
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
def test_refusal_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="KEY=STATUS"):
        parse_refusal(text)
