"""What holds a limit per day: units (requests or tokens) that are counted, not spaced.

Guarantee: the units that a provider counts are never more than `amount` in any 24 hours, or in any
calendar day of a zone, over any number of runs and processes, whenever they are killed, as long as
the host's wall clock is right. After a clock that was wrong the provider's own refusal ends the
day.

**When units were sent** is known as a span: from the grant to the answer, or to `late_s` after the
grant as long as there is none. Bounds of spans are bounds of cells of 5 minutes, so that the file
stays small. Units come free a day after the end of their span; of calendar days they count on each
that the span touches. Within `SKEW_S` of midnight both days must have room, as the provider's clock
is not ours.

**Written ahead.** Units are granted out of a block that is in the file, as sent at any time from
now to `late_s` later. With the next write only what was really sent stays in, and with `settle`
what was really used; a killed run's last block stays as if it had been used. So the file never
counts less than what was sent. A block is a fiftieth of the amount: a kill costs at most 2 % of a
day and what was in flight, and a whole day's amount some 50 writes of 0.6 ms (40 ms on a disk that
spins: 2 s).

**On the loop.** A write stops the loop that the broker runs on: for 0.8 ms in the median of 300 on
a quiet virtual disk (9 ms at worst), for 6 to 10 ms while others keep that disk busy (67 ms). There
is one for each block, and one every few minutes and file while requests go on. With xdist only the
broker's process waits. A thread would save that at the price of one more state for each lane, which
waits for its block, as no send may leave before that is on disk. The lock is held for one write,
and the wait for it is as long; the 2 s that it may last are for a machine that stalls.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, time, timedelta
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.day_file import DayRecord, Span
from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from pytest_ultrapar.broker.day_file import DayMemory
    from pytest_ultrapar.system.clock import DayClock

SKEW_S = 5
"""By so much a provider's midnight may differ from ours."""
DAY_S = 86_400 + 60
"""Over which any 24 hours are counted: NTP may slow or hasten a clock by 500 ppm, 43 s per day."""
_KEPT_S = 26 * 3600
"""For how long a file keeps what was sent: the longest day of a zone has 25 hours. What a wrong
clock dated so far ahead is not kept either."""
_BLOCKS = 50
"""Blocks per amount."""
_CELL_S = 300
"""Midnights of all zones of today are at a quarter of an hour, and so between two cells."""
_LOOK_S = 60
"""Units come free, and days begin, at whole minutes of the wall clock or `SKEW_S` beside them."""
_RETRY_S = 5.0
"""How long a file that could not be written is left alone."""


class DayReservation(msgspec.Struct):
    """Units of one send; what `DayLedger.reserve` returns and `settle` wants back.

    Attributes:
        units: Reserved; what was used once that is known.
        span: When they were sent, as far as that is known.
    """

    units: int
    span: Span


class DayLedger:
    """Counts units against an amount per day. Same shape as `TokenPacer`, all times the broker's.

    A file (`DayMemory`) makes it hold over runs; without one it lives as long as the object, for a
    simulated provider that the run starts itself, for forecasts and for tests.

    Attributes:
        amount: Units per day.
        trouble: Why the memory could not be written when that was last tried, a sentence; or empty.
        failing_since_s: From when on nothing is granted for that reason alone; infinity: it is not
            so.
    """

    def __init__(
        self,
        amount: int,
        clock: DayClock,
        now_s: float,
        *,
        zone: ZoneInfo | None = None,
        memory: DayMemory | None = None,
        late_s: float = 300.0,
    ) -> None:
        """Read the memory, write nothing.

        Args:
            amount: Units per day, >= 1.
            clock: The host's wall clock.
            now_s: Now.
            zone: Where days begin at midnight; None counts any 24 hours.
            memory: Where the count is kept over runs; None keeps it in this object only.
            late_s: How long after its grant a request may still be counted by the provider, as long
                as nobody knows what became of it: the longest that a request may take.

        Raises:
            ConfigError: The memory cannot be read or trusted.
        """
        self.amount = amount
        self.trouble = ""
        self.failing_since_s = math.inf
        self._clock = clock
        self._zone = zone
        self._memory = memory
        self._late_s = late_s
        # What was sent by earlier runs and others, and by us; and what of ours is in the file.
        self._others: Counter[Span] = Counter()
        self._ours: Counter[Span] = Counter()
        self._written: Counter[Span] = Counter()
        # Units in the file that may be granted as long as what is sent now has the span `_block`.
        self._spare = 0
        self._block: Span = (0, 0)
        # Units counted on each day that matters now, until the wall clock's next look.
        self._used: dict[int, int] = {}
        self._used_until_s = -math.inf
        self._retry_s = -math.inf
        self._now_s = -math.inf
        self._wall_s = 0.0
        found = memory.read() if memory is not None else None
        if found is not None:
            self._others = found.spans()
        self._look(now_s)

    def claim(self, now_s: float) -> None:
        """Write the memory once, at the start of a run that will send.

        Raises:
            ConfigError: It cannot be written: no such directory, no permission, a full disk.
        """
        self._look(now_s)
        self._draw(0)

    def left(self, now_s: float) -> int:
        """Units that may still be sent now; never below 0. Writes nothing."""
        self._look(now_s)
        return max(0, self._room())

    @property
    def is_kept(self) -> bool:
        """Whether the count outlives this object."""
        return self._memory is not None

    def free_at(self, units: int, now_s: float) -> str:
        """When so many units are free, for people: the wall clock's time, in the limit's zone.

        By what is known now; a time of the past where they are.
        """
        self._look(now_s)
        at_s = self._wall_s + self._free_in_s(units)
        if self._zone is None:
            free = datetime.fromtimestamp(math.ceil(at_s / 60) * 60, UTC)
            return f"next free {free:%Y-%m-%d %H:%M} UTC"
        midnight = datetime.fromtimestamp(round(at_s - SKEW_S), self._zone)
        return f"resets {midnight:%Y-%m-%d %H:%M} {self._zone.key}"

    def back_at_s(self, units: int, now_s: float) -> float:
        """When so many units are free if now there are none, as others have taken what we know of.

        Of any 24 hours that is when the first of ours come free: those of others may do so earlier.
        """
        self._look(now_s)
        return now_s + self._free_in_s(units)

    def ready_at_s(self, units: int, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send of so many units is allowed.

        `now_s` means that the units are on disk; to that end this may write. Later times are when
        units come free by what is known now, and a few seconds ahead where the memory could not be
        written (`trouble`). Infinity when it is larger than the amount.
        """
        if units > self.amount:
            return math.inf
        self._look(now_s)
        if units > self._room():
            self.failing_since_s = math.inf
            return now_s + self._free_in_s(units)
        if units > self._spare:
            if now_s < self._retry_s:
                return self._retry_s
            try:
                self._draw(max(units, self.amount // _BLOCKS))
            except ConfigError as error:
                self.trouble = str(error)
                self.failing_since_s = min(self.failing_since_s, now_s)
                self._retry_s = now_s + _RETRY_S
                return self._retry_s
        # Another run may have been there before us.
        return now_s if units <= self._spare else now_s + self._free_in_s(units)

    def reserve(self, units: int, now_s: float) -> DayReservation:
        """Count one send at `now_s`.

        Raises:
            ValueError: When no such send is allowed at `now_s` (ask `ready_at_s` first).
        """
        ready_s = self.ready_at_s(units, now_s)
        if ready_s > now_s:
            raise ValueError(
                f"a send of {units} units at {now_s!r} s is {ready_s - now_s:.6f} s too early"
            )
        self._spare -= units
        self._count(self._block, units)
        return DayReservation(units, self._block)

    def settle(self, reservation: DayReservation, units: int, now_s: float) -> None:
        """Say how many units a send took, when its lease comes back; 0 if nothing was sent.

        To be said of requests, too (with 1): until then a send counts for `late_s` longer, and for
        two days when it is near midnight. Not said, all stays reserved. May be said again. Writes
        only if it took more than was reserved.
        """
        self._look(now_s)
        before = reservation.span
        span = before[0], max(before[0] + _CELL_S, _cell_end(self._wall_s + SKEW_S))
        more = units - reservation.units
        self._count(before, -reservation.units)
        self._count(span, units)
        reservation.units, reservation.span = units, span
        if more > self._spare:
            # It has been sent, so there is no question of room.
            self._write()
        elif before == self._block or more > 0:
            self._spare -= more

    def close(self, now_s: float) -> None:
        """Write what is known now, which gives back what was written ahead; for an orderly end.

        Never raises: what cannot be written stays counted.
        """
        self._look(now_s)
        if self._written != self._ours:
            self._write()

    def _write(self) -> None:
        try:
            self._draw(0)
        except ConfigError as error:
            self._spare = 0
            self.trouble = str(error)

    def _look(self, now_s: float) -> None:
        """Read the clock; all that one event of the broker asks happens at one instant."""
        if now_s == self._now_s:
            return
        self._now_s = now_s
        self._wall_s = self._clock.wall_s(now_s)
        block = (
            _cell_end(self._wall_s - SKEW_S) - _CELL_S,
            _cell_end(self._wall_s + SKEW_S + self._late_s),
        )
        if self._block != block:
            self._spare = 0
            self._block = block
            self._add_up()
        elif self._wall_s >= self._used_until_s:
            self._add_up()

    def _draw(self, units: int) -> None:
        """Have so many units in the file ahead, or fewer where there is no room.

        Raises:
            ConfigError: The file cannot be read or written.
        """
        if self._memory is None:
            self._spare = max(0, self._room())
            return
        memory = self._memory
        wanted: Counter[Span] = Counter()

        def change(found: DayRecord | None) -> DayRecord:
            nonlocal wanted
            if found is not None:
                # A file that was removed while we run would otherwise take others' units with it.
                self._others = found.spans()
                self._others.subtract(self._written)
                self._others = +self._others
                self._add_up()
            wanted = self._ours + Counter({self._block: max(0, min(units, self._room()))})
            return DayRecord.of(memory.shown, self._others + wanted)

        memory.update(change)
        self._spare = wanted[self._block] - self._ours[self._block]
        self._written = wanted
        self.trouble = ""
        self.failing_since_s = math.inf

    def _count(self, span: Span, units: int) -> None:
        self._ours[span] += units
        for day in self._days(span, self._wall_s):
            if day in self._used:
                self._used[day] += units

    def _room(self) -> int:
        return self.amount - max(self._used.values())

    def _add_up(self) -> None:
        # Not in `_written`: what the file still holds would be taken for another run's.
        for counter in (self._others, self._ours):
            for begin, end in list(counter):
                if end + _KEPT_S <= self._wall_s or begin - _KEPT_S > self._wall_s:
                    del counter[begin, end]
        self._used = self._used_at(self._wall_s)
        self._used_until_s = min(
            (self._wall_s + by_s) // _LOOK_S * _LOOK_S + _LOOK_S - by_s
            for by_s in (0, SKEW_S, -SKEW_S)
        )

    def _used_at(self, wall_s: float) -> dict[int, int]:
        """Units on each day that it may be at a time, if nothing more is sent until then."""
        used = dict.fromkeys(self._days((wall_s - SKEW_S, wall_s + SKEW_S + 1), wall_s), 0)
        for span, units in self._sent():
            for day in self._days(span, wall_s):
                if day in used:
                    used[day] += units
        return used

    def _sent(self) -> Iterator[tuple[Span, int]]:
        return chain(self._others.items(), self._ours.items())

    def _days(self, span: tuple[float, float], wall_s: float) -> range:
        """The days on which units of a span count; without a zone, whether they do at all."""
        begin, end = span
        if self._zone is None:
            return range(end + DAY_S > wall_s)
        first, last = (_date(at_s, self._zone).toordinal() for at_s in (begin, end - 1))
        # Either way round: there were zones whose midnight came twice.
        return range(min(first, last), max(first, last) + 1)

    def _free_in_s(self, units: int) -> float:
        """Seconds until so many units are free, if nothing more is sent until then."""
        if self._zone is None:
            missing = units - self._room()
            for (_, end), n in sorted(self._sent(), key=lambda one: one[0][1]):
                if end + DAY_S > self._wall_s:
                    missing -= n
                    if missing <= 0:
                        return end + DAY_S - self._wall_s
            return float(DAY_S)
        # The second midnight is for what counts on both days already.
        midnight_s = self._wall_s - SKEW_S
        for _ in range(2):
            tomorrow = _date(midnight_s, self._zone).date() + timedelta(days=1)
            midnight_s = datetime.combine(tomorrow, time(), self._zone).timestamp()
            free_s = midnight_s + SKEW_S
            if units + max(self._used_at(free_s).values()) <= self.amount:
                return free_s - self._wall_s
        return float(_KEPT_S)


def _date(at_s: float, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(at_s, zone)


def _cell_end(at_s: float) -> int:
    return math.floor(at_s / _CELL_S) * _CELL_S + _CELL_S
