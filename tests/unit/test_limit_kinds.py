"""Each kind of limit is a row of one table and a field, and all code follows the row."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ultrapar.analysis.plan.load import LaneLoad, limit_loads
from pytest_ultrapar.broker.daily_limits import counted_days, open_days
from pytest_ultrapar.pool.file import LimitTable
from pytest_ultrapar.pool.model import LIMIT_KINDS, Limit
from pytest_ultrapar.simulator.faults.file import CapacityTable
from pytest_ultrapar.simulator.limits import Gate, LimitPath
from tests.broker_play import Play
from tests.played_clock import PlayedDayClock
from tests.pools import lane, pool
from tests.unit.pool_texts import simulated

AMOUNT = 3
every_kind = pytest.mark.parametrize("word", LIMIT_KINDS)


def limit(word: str, amount: float = AMOUNT) -> Limit:
    return Limit("k0", "key", **{word: amount})


def test_words_of_the_table_are_the_fields_of_a_limit_and_of_the_file():
    fields = [name for name in LimitTable.__struct_fields__ if name not in {"day", "budget"}]
    assert fields == list(LIMIT_KINDS)
    rows = Limit("k0", "key", **dict.fromkeys(LIMIT_KINDS, 1)).rows
    assert [row.kind.word for row in rows] == fields


@every_kind
def test_pool_file_sets_the_limit_and_its_origin_is_known(word, load):
    read = load(simulated(f"per_key = {{ {word} = {AMOUNT} }}"))
    assert [(row.kind.word, row.amount) for row in read.limits["sim/key0"].rows] == [(word, AMOUNT)]
    assert f"sim/key0 {word}" in {one.name for one in read.effective}


@every_kind
def test_broker_grants_no_more_than_the_limit(word):
    of = pool([lane("a", "k0", "k0")], limit(word))
    clock = PlayedDayClock(1_700_000_000)
    days = open_days(of, counted_days(of, of.lanes, {}, Path()), clock, 100.0)
    play = Play(of, days=days)
    for _ in range(2 * AMOUNT):
        play.ask(tokens=1)
    assert 0 < len(play.leases) <= AMOUNT


@every_kind
def test_simulated_provider_refuses_requests_above_the_limit(word):
    path = LimitPath([Gate(limit(word), PlayedDayClock(1_700_000_000))])
    refused = [path.admit(0.0, 1) for _ in range(2 * AMOUNT)]
    # Windows tolerate one more request, because of the time on the network.
    assert refused[AMOUNT - 1] is None
    assert refused[-1] is not None
    assert refused[-1].bound == word


def test_fault_scripts_can_change_every_kind_except_daily_limits():
    words = {word for word, kind in LIMIT_KINDS.items() if not kind.is_daily}
    assert words == set(CapacityTable.__struct_fields__) & set(LIMIT_KINDS)


@every_kind
def test_plan_shows_the_load_on_the_limit(word):
    of = pool([lane("a", "k0", "k0")], limit(word))
    load = LaneLoad()
    load.requests, load.busy_s, load.tokens = 7, 7.0, 7
    (found,) = limit_loads(of.lanes, of.limits, {of.lanes[0].lane_id: load})
    assert (found.name, found.allows, found.requests) == (f"k0 ({word})", AMOUNT, 7)
    assert found.alone_s > 0


@pytest.mark.parametrize("limits", ["rpm = 10, rpd = 100000", "rpm = 60, rpd = 50"])
def test_daily_limit_may_be_above_or_below_its_limit_per_minute(limits, load):
    assert load(simulated(f"per_key = {{ {limits} }}")).limits["sim/key0"].rpd
