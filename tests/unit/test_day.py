"""Units per day: spans of 24 hours, midnights of zones, in virtual time."""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from pytest_ultrapar.broker.day_file import DayMemory
from pytest_ultrapar.broker.day_ledger import DAY_S, DayLedger

NOON_S = 1_777_636_800.0
"""2026-05-01 12:00 UTC."""
HOUR_S = 3600.0


class Clocks:
    """The wall clock of a host, which a test moves."""

    def __init__(self, wall_s: float = NOON_S) -> None:
        self.now_s = wall_s

    def wall_s(self, now_s: float) -> float:
        assert now_s == self.now_s
        return now_s

    def go(self, seconds: float) -> None:
        self.now_s += seconds

    def go_to(self, local: str, zone: ZoneInfo) -> None:
        self.now_s = wall(local, zone)


def wall(local: str, zone: ZoneInfo) -> float:
    return datetime.fromisoformat(local).replace(tzinfo=zone).timestamp()


def spend(ledger: DayLedger, units: int, clocks: Clocks) -> int:
    """Send up to so many single units, each answered immediately; return how many were sent."""
    for sent in range(units):
        if ledger.ready_at_s(1, clocks.now_s) > clocks.now_s:
            return sent
        ledger.settle(ledger.reserve(1, clocks.now_s), 1, clocks.now_s)
    return units


def ledger_of(amount: int, clocks: Clocks, zone: ZoneInfo | None = None, **more) -> DayLedger:
    return DayLedger(amount, clocks, clocks.now_s, zone=zone, **more)


def test_no_24_hours_exceed_the_amount():
    clocks = Clocks()
    ledger = ledger_of(10, clocks)
    assert spend(ledger, 6, clocks) == 6
    clocks.go(12 * HOUR_S)
    assert spend(ledger, 9, clocks) == 4
    clocks.go(12 * HOUR_S)
    assert ledger.left(clocks.now_s) == 0
    clocks.go(360.0)
    assert spend(ledger, 9, clocks) == 6
    clocks.go(12 * HOUR_S)
    assert spend(ledger, 9, clocks) == 4


def test_ledger_knows_when_units_become_free():
    clocks = Clocks()
    ledger = ledger_of(10, clocks)
    spend(ledger, 6, clocks)
    clocks.go(HOUR_S)
    spend(ledger, 4, clocks)
    first_s = ledger.ready_at_s(6, clocks.now_s) - clocks.now_s
    later_s = ledger.ready_at_s(7, clocks.now_s) - clocks.now_s
    assert 23 * HOUR_S < first_s <= 23 * HOUR_S + 360
    assert later_s == first_s + HOUR_S
    assert ledger.ready_at_s(11, clocks.now_s) == math.inf
    clocks.go(first_s - 1)
    assert ledger.left(clocks.now_s) == 0
    clocks.go(1)
    assert ledger.left(clocks.now_s) == 6


def test_reserved_units_that_were_not_used_are_free_immediately():
    clocks = Clocks()
    ledger = ledger_of(1000, clocks)
    reserved = ledger.reserve(900, clocks.now_s)
    assert ledger.left(clocks.now_s) == 100
    clocks.go(100)
    ledger.settle(reserved, 250, clocks.now_s)
    assert ledger.left(clocks.now_s) == 750
    ledger.settle(reserved, 0, clocks.now_s)
    assert ledger.left(clocks.now_s) == 1000


def test_day_of_a_unit_begins_with_the_answer():
    """Providers count a request when it arrives or when it ends, so the later time counts."""
    clocks = Clocks()
    ledger = ledger_of(1, clocks, late_s=4 * HOUR_S)
    reserved = ledger.reserve(1, clocks.now_s)
    assert ledger.ready_at_s(1, clocks.now_s) - clocks.now_s > 28 * HOUR_S
    clocks.go(3 * HOUR_S)
    ledger.settle(reserved, 1, clocks.now_s)
    ready_s = ledger.ready_at_s(1, clocks.now_s) - clocks.now_s
    assert 24 * HOUR_S < ready_s <= 24 * HOUR_S + 360


LOS_ANGELES = ZoneInfo("America/Los_Angeles")


@pytest.mark.parametrize(
    ("zone", "evening", "midnight", "hours"),
    [
        ("America/Los_Angeles", "2026-05-01T22:00", "2026-05-02T00:00", 24),
        ("America/Los_Angeles", "2026-03-07T22:00", "2026-03-08T00:00", 23),
        ("America/Los_Angeles", "2026-10-31T22:00", "2026-11-01T00:00", 25),
        # Half an hour of daylight saving, and quarters of an hour from UTC.
        ("Australia/Lord_Howe", "2026-04-04T22:00", "2026-04-05T00:00", 24.5),
        ("Asia/Kathmandu", "2026-05-01T22:00", "2026-05-02T00:00", 24),
        # On the next two days 0:00 to 1:00 does not exist, so the day before ends at 1:00.
        ("America/Sao_Paulo", "2018-11-03T22:00", "2018-11-04T01:00", 23),
        ("Asia/Beirut", "2022-03-26T22:00", "2022-03-27T01:00", 23),
        ("America/Sao_Paulo", "2018-02-17T22:00", "2018-02-18T00:00", 24),
        ("Asia/Beirut", "2022-10-29T22:00", "2022-10-30T00:00", 24),
    ],
)
def test_calendar_day_ends_at_the_zones_midnight(zone, evening, midnight, hours):
    zone = ZoneInfo(zone)
    clocks = Clocks(wall(evening, zone))
    ledger = ledger_of(10, clocks, zone)
    assert spend(ledger, 10, clocks) == 10
    until_s = ledger.ready_at_s(1, clocks.now_s) - clocks.now_s
    assert clocks.now_s + until_s == wall(midnight, zone) + 5
    clocks.go(until_s - 1)
    assert ledger.left(clocks.now_s) == 0
    clocks.go(1)
    assert spend(ledger, 11, clocks) == 10
    until_s = ledger.ready_at_s(1, clocks.now_s) - clocks.now_s
    assert until_s == hours * HOUR_S
    clocks.go(until_s - 1)
    assert ledger.left(clocks.now_s) == 0
    clocks.go(1)
    assert ledger.left(clocks.now_s) == 10


def test_units_sent_before_midnight_count_for_the_old_day():
    """Units sent and answered seconds before midnight take nothing from the new day."""
    clocks = Clocks(wall("2026-05-01T23:59:50", LOS_ANGELES))
    ledger = ledger_of(10, clocks, LOS_ANGELES)
    assert spend(ledger, 10, clocks) == 10
    clocks.go(15)
    assert spend(ledger, 11, clocks) == 10


@pytest.mark.parametrize("zone", [None, ZoneInfo("America/Los_Angeles")])
def test_units_dated_far_ahead_by_a_wrong_clock_are_forgotten(tmp_path, zone):
    clocks = Clocks()
    memory = DayMemory(tmp_path, "count", "requests per day for k")
    assert spend(ledger_of(10, clocks, zone, memory=memory), 10, clocks) == 10
    clocks.go(-12 * HOUR_S)
    assert ledger_of(10, clocks, memory=memory).left(clocks.now_s) == 0
    clocks.go(-48 * HOUR_S)
    assert ledger_of(10, clocks, zone, memory=memory).left(clocks.now_s) == 10


def test_amount_and_kind_of_day_may_change_between_runs(tmp_path):
    clocks = Clocks(wall("2026-05-01T20:00", LOS_ANGELES))
    memory = DayMemory(tmp_path, "count", "requests per day for k")
    spend(ledger_of(10, clocks, memory=memory), 10, clocks)
    assert ledger_of(8, clocks, memory=memory).left(clocks.now_s) == 0
    assert ledger_of(15, clocks, memory=memory).left(clocks.now_s) == 5
    clocks.go(6 * HOUR_S)
    assert ledger_of(15, clocks, LOS_ANGELES, memory=memory).left(clocks.now_s) == 15
    assert ledger_of(15, clocks, memory=memory).left(clocks.now_s) == 5


def test_orderly_end_returns_units_that_were_reserved_ahead(tmp_path):
    clocks = Clocks()
    memory = DayMemory(tmp_path, "count", "requests per day for k")
    ledger = ledger_of(1000, clocks, memory=memory)
    spend(ledger, 1, clocks)
    assert ledger_of(1000, clocks, memory=memory).left(clocks.now_s) == 980
    ledger.close(clocks.now_s)
    assert ledger_of(1000, clocks, memory=memory).left(clocks.now_s) == 999


def test_use_above_the_reservation_counts_in_full():
    clocks = Clocks()
    ledger = ledger_of(1000, clocks)
    reserved = ledger.reserve(900, clocks.now_s)
    ledger.settle(reserved, 1100, clocks.now_s)
    assert ledger.left(clocks.now_s) == 0
    assert ledger.ready_at_s(1, clocks.now_s) > clocks.now_s + DAY_S - 120
