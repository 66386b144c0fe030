"""Counted rows of a host: units are spent once, calendar days, closed rows."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.day_file import DayMemory
from pytest_ultrapar.broker.day_ledger import DayLedger
from pytest_ultrapar.broker.demand import RowDemand
from pytest_ultrapar.broker.shares import GrantedUnits, HeldUnits
from pytest_ultrapar.cluster.earlier_daily_use import DayFiles
from pytest_ultrapar.cluster.ledger import RowShare, RowSpec
from pytest_ultrapar.cluster.ledger_view import LedgerKeys, view_of
from pytest_ultrapar.cluster.spent_rows import CountedRow, CountedShare
from pytest_ultrapar.cluster.status import Status, status_lines
from tests.played_clock import PlayedDayClock

SPEC = RowSpec(name="rpd", kind="counted", amount=500, window_ms=86_400_000)
WANT = RowDemand(10)


class Spender:
    """A broker's tranche and its share in the ledger. Calls may take any time."""

    def __init__(self, row, amount):
        self.row, self.amount = row, amount
        self.tranche = GrantedUnits()
        self.share = CountedShare(row, SPEC, self.holding)
        self.open = []
        self.n_used = 0

    @property
    def holding(self):
        one = self.tranche
        return HeldUnits(max(0, one.left), one.spent, one.reserved)

    def spend(self, units):
        if units <= self.tranche.usable:
            self.tranche.reserve(units)
            self.open.append(units)

    def settle(self, percent):
        if self.open:
            units = self.open.pop(0)
            used = units * percent // 100 if self.row.reserves else units
            self.tranche.settle(units, used)
            self.n_used += used

    def call(self):
        self.use = self.share.use(self.holding, WANT)
        return self.use

    def answer(self, grant, *, forfeits=False):
        answer = RowShare(grant, self.amount, grant, 0, self.use.spent)
        units, _ = self.share.answered(answer, self.holding, forfeits=forfeits)
        self.tranche.left, self.tranche.is_open = units, True


@given(
    reserves=st.booleans(),
    size=st.sampled_from([1, 7, 1000]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["spend", "settle", "call", "answer", "lost"]), st.integers(0, 100)
        ),
        max_size=80,
    ),
)
def test_held_and_spent_units_never_exceed_the_grant(reserves, size, steps):
    """Count like a ledger: spent plus held as last reported, or as granted if that is more."""
    row = CountedRow(size=size, reserves=reserves)
    host = Spender(row, 300)
    host.call()
    host.answer(0)
    use, is_asked, granted = host.call(), True, 0
    for what, n in steps:
        if what == "spend":
            host.spend(n * size // 10)
        elif what == "settle":
            host.settle(n)
        elif what == "call":
            use, is_asked = host.call(), True
            granted = 0
        elif what == "answer" and is_asked:
            # Like a ledger: units that are neither spent nor held can be granted.
            granted = min(use.held + n, 300 - use.spent)
            is_asked = False
            host.answer(granted)
        elif what == "lost" and is_asked:
            is_asked = False
        most = (use.spent + max(use.held, granted)) * size
        reserved = sum(host.open)
        assert host.n_used + reserved <= most
        assert host.n_used + reserved <= 300 * size
        assert host.tranche.usable + host.n_used + reserved <= most


def test_both_days_count_before_midnight_for_the_longest_time_of_a_request():
    row = CountedRow(zone="America/Los_Angeles", late_s=300)
    midnight_s = datetime(2026, 3, 9, 7, tzinfo=UTC).timestamp()
    both = ("2026-03-08", "2026-03-09")
    assert row.days(midnight_s - 400) == both[:1]
    assert row.days(midnight_s - 305) == both
    assert row.days(midnight_s + 5) == both
    assert row.days(midnight_s + 20) == both[1:]
    assert CountedRow(late_s=300).days(midnight_s) == ("",)


def test_row_of_a_day_that_awaits_its_hosts_is_closed():
    def text(kind, epoch, awaits):
        rest = [kind, epoch, 500, 1000, 0, 0, 0, 0, 0, awaits, 1, 0]
        return struct.pack("<ddddd", 1, 2, 3, 4, 500) + msgspec.msgpack.encode(rest)

    rows = {
        b"a": text("counted", 7, 1),
        b"b": text("counted", 7, 0),
        b"c": text("paced", 7, 0),
        b"d": text("counted", 6, 1),
    }
    ledger = {b"epoch": b"7", b"now": b"90000", b"server": b"90000", b"begun": b"1000"}
    view = view_of(
        LedgerKeys(
            ledger={**ledger, b"closing": b"expiry"},
            seen={},
            rows=rows,
            shares={},
            hosts={},
            names={"a": ("key a", "rpd")},
            news={},
            server_ms=90_000,
        )
    )
    (found,) = view.rows
    assert (found.row, found.amount, found.window_s, found.awaits) == ("a", 500, 1, True)
    (said,) = [
        line
        for line in status_lines(Status("redis://a", "Redis 7", False, (), (), view))
        if "closed" in line
    ]
    assert "key a's rpd = 500: closed" in said
    assert "ultrapar cluster reset-day" in said


@pytest.mark.parametrize("killed", [False, True])
def test_units_spent_without_the_cluster_are_reported_once(tmp_path, killed):
    clock = PlayedDayClock(1e9)
    files = DayFiles(str(tmp_path), "whole", "told", "requests per day for lab/key0")

    def spend(n, *names):
        ledgers = [
            DayLedger(500, clock, 0.0, memory=DayMemory(tmp_path, name, files.shown))
            for name in names
        ]
        for ledger in ledgers:
            ledger.claim(0.0)
            for _ in range(n):
                ledger.settle(ledger.reserve(1, 0.0), 1, 0.0)
            if not killed:
                ledger.close(0.0)

    now = clock.wall_s(0.0)
    assert not files.untold(now)
    spend(40, "whole")
    before = files.untold(now)
    assert 40 <= sum(before.values()) <= 50
    assert files.on_day(before, "") == sum(before.values())
    files.tell(before)
    assert not files.untold(now)
    spend(30, "whole", "told")
    assert not files.untold(now)
    spend(7, "whole")
    assert 7 <= sum(files.untold(now).values()) <= 20
    assert not files.untold(now + 2 * 86_400)
