from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ultrapar.broker.daily_limits import DailyLimit, counted_days, open_days
from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.system import files
from tests.broker_play import Play
from tests.played_clock import PlayedDayClock
from tests.pools import lane, pool

NOON_S = 1_700_000_000.0 - 1_700_000_000.0 % 86_400 + 43_200
DAY_S = 86_400
TIMEOUT_S = 900.0


def play(*limits: Limit, lanes: Any = None, start_s: float = NOON_S) -> Play:
    of = pool(lanes or [lane("a", "k0", "k0")], *limits)
    counted = counted_days(of, of.lanes, {}, Path())
    clock = PlayedDayClock(start_s - 100.0)
    return Play(of, episode_timeout_s=TIMEOUT_S, days=open_days(of, counted, clock, 100.0))


def test_requests_above_a_daily_limit_are_refused_as_daily_quota():
    of = play(Limit("k0", "key", 2, rpd=3))
    asked = [of.ask() for _ in range(5)]
    assert set(of.leases) == {1, 2}
    of.back(1)
    assert not of.refused
    of.back(2)
    assert set(of.leases) == {3}
    assert not of.refused, "a request in flight may return its unit"
    of.back(3)
    assert set(of.refused) == set(asked[3:])
    assert "daily limit of k0 (rpd = 3) is used up" in of.refused[4]
    assert of.kinds == {"daily_quota"}
    late = of.ask()
    assert late in of.refused


def test_unit_of_a_request_that_was_not_sent_is_granted_again():
    of = play(Limit("k0", "key", rpd=1))
    first, second = of.ask(), of.ask()
    assert list(of.leases) == [first]
    of.back(first, "unsent")
    assert list(of.leases) == [second]


def test_other_key_serves_requests_if_the_first_has_no_units():
    lanes = [lane("a", "k0", "k0"), lane("a", "k1", "k1")]
    of = play(Limit("k0", "key", 9, rpd=1), Limit("k1", "key", 9, rpd=4), lanes=lanes)
    for _ in range(5):
        of.ask()
    assert sorted(one.lane for one in of.leases.values()) == ["p/a/k0", *["p/a/k1"] * 4]
    assert not of.refused


def test_request_within_the_episode_timeout_is_served_when_units_become_free():
    start_s = NOON_S + 12 * 3600 - 600
    of = play(Limit("k0", "key", 9, rpd=1, day="UTC"), start_s=start_s)
    first, second = of.ask(), of.ask()
    of.back(first)
    assert not of.refused
    of.wait(590.0)
    assert not of.leases
    of.wait(30.0)
    assert list(of.leases) == [second]


def test_tokens_are_counted_as_reserved_and_then_as_used():
    of = play(Limit("k0", "key", 9, tpd=1000))
    first = of.ask(tokens=800)
    second = of.ask(tokens=700)
    assert list(of.leases) == [first]
    lease = of.leases.pop(first)
    of.book(of.broker.release("gw0", lease.lease_id, "ok", Feedback(tokens=300), of.now_s))
    assert list(of.leases) == [second]
    assert of.ask(tokens=1001) in of.refused


def test_small_request_is_not_refused_for_a_large_one():
    of = play(Limit("k0", "key", 9, tpd=1000))
    first = of.ask(tokens=800)
    large, small = of.ask(tokens=500), of.ask(tokens=100)
    of.back(first)
    assert set(of.refused) == {large}
    assert list(of.leases) == [small]


def test_daily_limits_have_no_effect_without_a_memory():
    of = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", rpd=1)))
    for _ in range(3):
        of.ask()
    assert len(of.leases) == 3


def test_second_run_continues_with_the_units_that_the_first_left(tmp_path):
    of = pool([lane("a", "k0", "k0")], Limit("k0", "key", rpd=100))
    counted = [DailyLimit("k0", "rpd", 60.0, "file", str(tmp_path))]

    def run(n: int, *, at_s: float, ends: bool = True) -> int:
        clock = PlayedDayClock(NOON_S)
        play = Play(of, episode_timeout_s=TIMEOUT_S, days=open_days(of, counted, clock, at_s))
        play.now_s = at_s
        for _ in range(n):
            play.ask()
        granted = len(play.leases)
        for one in list(play.leases):
            play.back(one)
        if ends:
            play.broker.close(play.now_s)
        return granted

    assert run(30, at_s=0) == 30
    assert run(35, at_s=60, ends=False) == 35
    rest = run(80, at_s=120)
    assert 33 <= rest <= 35
    assert run(5, at_s=3600) == 0
    assert run(200, at_s=DAY_S + 3600) == 100


@pytest.mark.parametrize(
    ("level", "same"), [("key", True), ("key_model", True), ("lane", True), ("provider", False)]
)
def test_daily_limits_of_a_key_are_stored_under_its_identity(level, same):
    of = pool([lane("a", "k0", "k0")], Limit("k0", level, rpd=5))
    (lane_id,) = (one.lane_id for one in of.lanes)

    def name(identity: str) -> str:
        (one,) = counted_days(of, of.lanes, {lane_id: identity}, Path("/state"))
        return one.name

    assert name("a" * 64)
    assert (name("a" * 64) != name("b" * 64)) is same


def test_daily_limits_of_the_runs_own_simulator_are_not_stored():
    of = pool([lane("a", "k0", "k0")], Limit("k0", "key", rpd=5))
    (one,) = counted_days(of, of.lanes, {}, Path("/state"))
    assert one.name == ""


def test_waiting_request_is_refused_when_the_only_lane_with_units_is_removed():
    lanes = [lane("a", "k0", "k0"), lane("a", "k1", "k1")]
    of = play(Limit("k0", "key", 1, rpd=1), Limit("k1", "key", 1), lanes=lanes)
    asked = [of.ask() for _ in range(5)]
    of.back(next(n for n in of.leases if of.leases[n].lane == "p/a/k0"))
    waiting = set(asked) - set(of.leases) - {asked[0]}
    of.back(next(n for n in of.leases), "auth")
    assert not of.leases
    assert set(of.refused) >= waiting
    assert of.kinds == {"daily_quota"}


@pytest.fixture
def unwritable(tmp_path, monkeypatch):
    """A run that can no longer write its file of the day."""
    of = pool([lane("a", "k0", "k0")], Limit("k0", "key", 1, rpd=100))
    counted = [DailyLimit("k0", "rpd", 60.0, "file", str(tmp_path))]
    run = Play(
        of,
        episode_timeout_s=TIMEOUT_S,
        days=open_days(of, counted, PlayedDayClock(NOON_S), 100.0),
    )

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(os), "fsync": fail}))
    return run


def test_short_failure_to_write_the_memory_refuses_no_request(unwritable, monkeypatch):
    asked = [unwritable.ask() for _ in range(3)]
    unwritable.wait(12.0)
    assert not unwritable.leases
    assert not unwritable.refused
    monkeypatch.undo()
    unwritable.wait(6.0)
    assert list(unwritable.leases) == asked[:1]


def test_failure_to_write_the_memory_for_an_episode_timeout_refuses_all_requests(unwritable):
    asked = [unwritable.ask() for _ in range(3)]
    unwritable.wait(TIMEOUT_S - 10.0)
    assert not unwritable.refused
    unwritable.wait(20.0)
    assert set(unwritable.refused) == set(asked)
    assert "No space left" in unwritable.refused[asked[0]]
    assert unwritable.kinds == {"no_lane"}
