"""The memory of a day: no day has too many units, even if processes die at any moment."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, partial
from pathlib import Path
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_ultrapar.broker import day_file
from pytest_ultrapar.broker.day_file import DayMemory
from pytest_ultrapar.broker.day_ledger import DayLedger
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.system import files
from tests.examples import examples

IN_MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
"""Seconds: a disk takes up to 9 ms to replace a file, some 2,000 times."""
LATE_S = 300.0
DAY_S = 86_400.0
PROCESSES = ("one", "two")


class Killed(BaseException):
    """The process ends between two system calls."""


class System:
    """`os` for the memory of a day; it ends the process, or fails, before its n-th write."""

    def __init__(self) -> None:
        self.in_calls: int | None = None
        self.error: BaseException | None = None

    def _count(self) -> None:
        if self.in_calls is not None:
            self.in_calls -= 1
            if self.in_calls < 0:
                self.in_calls = None
                raise self.error

    def open(self, *args):
        self._count()
        return os.open(*args)

    def fsync(self, fd):
        self._count()
        # No test cuts the power, and a thousand examples would wait for the disk.

    def replace(self, *args):
        self._count()
        os.replace(*args)  # noqa: PTH105 - it replaces this function

    def __getattr__(self, name):
        return getattr(os, name)


class World:
    """The true time, which the wall clock shows."""

    def __init__(self, true_s: float) -> None:
        self.true_s = true_s

    def wall_s(self, now_s: float) -> float:
        assert now_s == self.true_s
        return self.true_s


@dataclass
class Sent:
    """A send: granted, and counted by the provider at some later time."""

    process: str
    granted_s: float
    reservation: object
    units: int
    counted_s: float | None = None


ZONES = (None, None, "America/Los_Angeles", "America/Sao_Paulo", "Asia/Kathmandu")
STARTS = {
    None: datetime(2026, 5, 1, 12, tzinfo=UTC),
    # The clocks go forward on 2026-03-08, and back on 2026-11-01.
    "America/Los_Angeles": datetime(2026, 10, 31, 12, tzinfo=UTC),
    # 2018-11-04 began at 1:00.
    "America/Sao_Paulo": datetime(2018, 11, 3, 20, tzinfo=UTC),
    "Asia/Kathmandu": datetime(2026, 5, 1, 17, tzinfo=UTC),
}


@cache
def date_of(at_s: float, zone: ZoneInfo) -> date:
    """The date at a time; called for each send after each step."""
    return datetime.fromtimestamp(at_s, zone).date()


class DayMachine(RuleBasedStateMachine):
    """Two processes send on one count, under any event."""

    @initialize(
        amount=st.sampled_from([1, 3, 20, 120]),
        zone=st.sampled_from(ZONES),
        is_greedy=st.booleans(),
    )
    def start(self, amount: int, zone: str | None, is_greedy: bool) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="day", dir=IN_MEMORY))
        self.system = System()
        self.amount = amount
        # Whether all possible sends are made after each change of time.
        self.is_greedy = is_greedy and amount <= 20
        self.zone = None if zone is None else ZoneInfo(zone)
        self.world = World(STARTS[zone].timestamp())
        self.ledgers: dict[str, DayLedger] = {}
        self.were_two = False
        self.in_flight: list[Sent] = []
        self.provider: list[Sent] = []
        self.open("one")

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            for sent in self.in_flight:
                sent.counted_s = sent.granted_s + LATE_S
                self.provider.append(sent)
            self.judge()
            shutil.rmtree(self.directory)

    # Actions of processes.

    @rule(process=st.sampled_from(PROCESSES))
    def open(self, process: str) -> None:
        if process in self.ledgers:
            return
        self.were_two = bool(self.ledgers)
        self.ledgers[process] = DayLedger(
            self.amount,
            self.world,
            self.world.true_s,
            zone=self.zone,
            memory=DayMemory(self.directory / "state", "count", "requests per day for k"),
            late_s=LATE_S,
        )
        self.call(partial(self.ledgers[process].claim, self.world.true_s), process)

    @rule(process=st.sampled_from(PROCESSES), units=st.integers(1, 40), n=st.integers(1, 30))
    def send(self, process: str, units: int, n: int) -> None:
        for _ in range(n):
            if process not in self.ledgers:
                return
            ledger, now_s = self.ledgers[process], self.world.true_s
            ready_s = self.call(partial(ledger.ready_at_s, units, now_s), process)
            if ready_s is None:
                return
            assert ready_s >= now_s
            assert (units <= self.amount) == (ready_s < float("inf"))
            if ready_s > now_s:
                # By the known count: a failed write may still be in the file.
                assert units > ledger.left(now_s) or ledger.trouble or self.were_two
                return
            reservation = ledger.reserve(units, now_s)
            self.in_flight.append(Sent(process, now_s, reservation, units))

    @rule(process=st.sampled_from(PROCESSES), share=st.sampled_from([0.0, 1.0]))
    def use_up(self, process: str, share: float) -> None:
        """Send all that is allowed."""
        if process not in self.ledgers:
            self.open(process)
        self.send(process, 1, self.amount)
        if share:
            self.answer_all(share)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.in_flight))
        used = data.draw(st.integers(0, sent.units) | st.just(sent.units))
        share = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
        self.answered(sent, used, share)

    @precondition(lambda self: self.in_flight)
    @rule(share=st.sampled_from([0.0, 1.0]))
    def answer_all(self, share: float) -> None:
        for sent in list(self.in_flight):
            self.answered(sent, sent.units, share)

    @rule(process=st.sampled_from(PROCESSES))
    def close(self, process: str) -> None:
        if process in self.ledgers:
            for sent in [one for one in self.in_flight if one.process == process]:
                self.answered(sent, sent.units, 1.0)
            self.call(partial(self.ledgers[process].close, self.world.true_s), process)
            self.ledgers.pop(process, None)

    @rule(process=st.sampled_from(PROCESSES), share=st.sampled_from([0.0, 1.0]))
    def kill(self, process: str, share: float) -> None:
        self.ledgers.pop(process, None)
        for sent in [one for one in self.in_flight if one.process == process]:
            self.in_flight.remove(sent)
            sent.counted_s = sent.granted_s + share * LATE_S
            self.provider.append(sent)

    @rule(n=st.integers(0, 6), is_kill=st.booleans())
    def spoil_the_next_write(self, n: int, is_kill: bool) -> None:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.system.in_calls, self.system.error = n, Killed() if is_kill else full

    # Changes of time.

    @rule(
        seconds=st.sampled_from([0.01, 1.0, 4.9, 31.0, 61.0, 700.0, 3600.0, 7.0 * 3600])
        | st.floats(-200.0, 200.0).map(lambda more_s: DAY_S + more_s)
        | st.floats(0.0, 2 * DAY_S)
    )
    def pass_time(self, seconds: float) -> None:
        self.go_to(self.world.true_s + seconds)

    @precondition(lambda self: self.zone is not None)
    @rule(from_midnight_s=st.floats(-8.0, 8.0))
    def go_to_midnight(self, from_midnight_s: float) -> None:
        at_s = self.world.true_s
        while self.date(at_s) == self.date(self.world.true_s):
            at_s += 900.0
        self.go_to(max(self.world.true_s, at_s // 900 * 900 + from_midnight_s))

    def go_to(self, true_s: float) -> None:
        # Nothing takes longer than declared.
        while due := [one for one in self.in_flight if one.granted_s + LATE_S < true_s]:
            self.world.true_s = max(self.world.true_s, due[0].granted_s + LATE_S)
            self.answered(due[0], due[0].units, 1.0)
        self.world.true_s = true_s
        self.be_greedy()

    def be_greedy(self) -> None:
        if self.is_greedy:
            for process in list(self.ledgers):
                self.use_up(process, 1.0)

    # Invariants.

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """A process that may send still counts all units that the provider has counted."""
        if not hasattr(self, "provider"):
            return
        now_s = self.world.true_s
        counted = self.units_of_today(now_s)
        out = sum(one.units for one in self.in_flight)
        for ledger in self.ledgers.values():
            # One of two processes learns of the other's sends with its next block.
            left = ledger.left(now_s)
            if not self.were_two:
                assert left <= max(0, self.amount - counted - out)

    def judge(self) -> None:
        """Check by the provider's own list that no day has too many units."""
        if self.zone is not None:
            of_day: Counter[date] = Counter()
            for one in self.provider:
                of_day[self.date(one.counted_s)] += one.units
            assert max(of_day.values(), default=0) <= self.amount
            return
        # As many days as there are sends begin with a send; compute their sums in one pass.
        sent = sorted(self.provider, key=lambda one: one.counted_s)
        units, end = 0, 0
        for first in sent:
            while end < len(sent) and sent[end].counted_s < first.counted_s + DAY_S:
                units += sent[end].units
                end += 1
            assert units <= self.amount
            units -= first.units

    def units_of_today(self, now_s: float) -> int:
        """The provider's count for the current day."""
        if self.zone is None:
            return sum(one.units for one in self.provider if now_s - DAY_S < one.counted_s)
        today = self.date(now_s)
        return sum(one.units for one in self.provider if self.date(one.counted_s) == today)

    def date(self, at_s: float) -> date:
        return date_of(at_s, self.zone)

    def answered(self, sent: Sent, used: int, share: float) -> None:
        now_s = self.world.true_s
        self.in_flight.remove(sent)
        self.ledgers[sent.process].settle(sent.reservation, used, now_s)
        sent.units = used
        sent.counted_s = sent.granted_s + share * (now_s - sent.granted_s)
        self.provider.append(sent)

    def call(self, what, process: str):
        """Let a process call its file; return None if it is killed on the way."""
        day_file.os = files.os = self.system
        try:
            return what()
        except Killed:
            event("killed while it wrote")
            self.kill(process, 1.0)
            return None
        except ConfigError as error:
            if "No space left" not in str(error):
                raise
            event("disk full at the start")
            self.kill(process, 0.0)
            return None
        finally:
            day_file.os = files.os = os


class TestDay(DayMachine.TestCase):
    settings = settings(
        examples(250),
        stateful_step_count=30,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
