"""The ledger of a daily limit. It counts units (requests or tokens), but does not space them.

Guarantee: the provider never counts more than `amount` units in any 24 hours. If the limit has a
time zone, calendar days in that zone apply instead. This is true for any number of runs and
processes, no matter when they are killed, provided that the machine's wall clock is right. If the
clock is wrong, the provider's own refusal stops sends for the day.

**The time of a send** is known only as a span, which begins with the grant. It ends with the answer
or, while there is no answer, `late_s` after the grant. Spans begin and end at multiples of 5
minutes, so that the file stays small. Without a time zone, units become free a day after the end of
their span. With one, a calendar day counts the units of every span that overlaps that day. Within
`SKEW_S` of midnight both days must have room, because the provider's clock may differ from this
machine's.

**Written ahead.** Units are granted from a block that is already in the file. The span of a block
begins when it is written and ends `late_s` later. The next write replaces the block with the units
that were actually sent, and `settle` corrects these to the units that were actually used. If a run
is killed, its last block counts as used. So the file never counts fewer units than were sent. A
block is a fiftieth of the daily amount. So if a run is killed, at most 2 % of the amount is lost,
plus the units of the requests in flight. The whole daily amount needs about 50 writes. Each write
takes 0.6 ms, or 40 ms on a spinning disk (2 s for the whole amount).

**On the event loop.** A write blocks the broker's event loop. In 300 writes on an idle virtual
disk, the median was 0.8 ms and the maximum 9 ms. While other processes kept the disk busy, a write
took 6 to 10 ms (67 ms at worst). Each block takes one write. In addition, each file is written
every few minutes while requests are sent. With xdist, only the broker's process waits for the
write. A thread would avoid this wait, but each lane would need another state, "waiting for its
block", because no request may be sent before the block is on disk. The lock is held for one write,
so waiting for the lock takes no longer than a write. The limit of 2 s on this wait matters only if
the machine stalls.
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
"""The largest difference allowed between the provider's midnight and this machine's, in seconds."""
DAY_S = 86_400 + 60
"""The length used for "any 24 hours", in seconds. It includes a margin, because NTP may slow down
or speed up a clock by 500 ppm (43 s per day)."""
_KEPT_S = 26 * 3600
"""How long units stay in a file, in seconds: the longest calendar day has only 25 hours. If a wrong
clock dated units further into the future than this, they are also dropped."""
_BLOCKS = 50
"""The number of blocks in the daily amount."""
_CELL_S = 300
"""A span consists of whole cells, each of this many seconds. In all current time zones, midnight
falls on a quarter of an hour in UTC, and so between two cells."""
_LOOK_S = 60
"""Units become free and days begin only at multiples of this many seconds (whole minutes), or
`SKEW_S` before or after them."""
_RETRY_S = 5.0
"""How many seconds to wait after a failed write of the file before the next attempt."""


class DayReservation(msgspec.Struct):
    """A reservation for one send. `DayLedger.reserve` creates it, and `settle` corrects it.

    Attributes:
        units: The units reserved or, once known, the units used.
        span: The period in which they were sent; the exact time is not known.
    """

    units: int
    span: Span


class DayLedger:
    """Counts units against a daily amount. Use it like `TokenPacer`, with the broker's times.

    With a file (`DayMemory`) the count continues from run to run. Without a file, the count ends
    with the object. Forecasts, tests, and a simulated provider that the run starts itself use no
    file.

    Attributes:
        amount: Units per day.
        trouble: A sentence that says why the last write of the file failed; empty if it succeeded.
        failing_since_s: The time since which only this failure has blocked grants; infinity if it
            blocks no grants.
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
        """Read the file. Nothing is written yet.

        Args:
            amount: Units per day, >= 1.
            clock: The machine's wall clock.
            now_s: The current time, monotonic seconds.
            zone: The time zone of the limit's calendar days; None to count over any 24 hours.
            memory: The file that keeps the count from run to run; None to keep it only in this
                object.
            late_s: How many seconds after its grant the provider may still count an unanswered
                request. This is the longest time that a request may take.

        Raises:
            ConfigError: The file cannot be read or trusted.
        """
        self.amount = amount
        self.trouble = ""
        self.failing_since_s = math.inf
        self._clock = clock
        self._zone = zone
        self._memory = memory
        self._late_s = late_s
        # The units sent by other runs (earlier or parallel ones), the units sent by this run, and
        # the units sent by this run according to the file.
        self._others: Counter[Span] = Counter()
        self._ours: Counter[Span] = Counter()
        self._written: Counter[Span] = Counter()
        # How many units that are already in the file may still be granted. Valid as long as the
        # span of a new send is `_block`.
        self._spare = 0
        self._block: Span = (0, 0)
        # The units that count on each day that may be the current one. Valid until `_used_until_s`.
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
        """Write the file once, before the first request of a run.

        Raises:
            ConfigError: The file cannot be written, for example because its directory cannot be
                created, permission is missing, or the disk is full.
        """
        self._look(now_s)
        self._draw(0)

    def left(self, now_s: float) -> int:
        """How many units may still be sent now; never below 0. Writes nothing."""
        self._look(now_s)
        return max(0, self._room())

    @property
    def is_kept(self) -> bool:
        """Whether the count is kept after this object is gone."""
        return self._memory is not None

    def free_at(self, units: int, now_s: float) -> str:
        """A phrase for messages that says when this many units become free.

        The time is in the limit's zone, or in UTC without a zone. It is computed from the units
        that are known now.
        """
        self._look(now_s)
        at_s = self._wall_s + self._free_in_s(units)
        if self._zone is None:
            free = datetime.fromtimestamp(math.ceil(at_s / 60) * 60, UTC)
            return f"more quota becomes free at {free:%Y-%m-%d %H:%M} UTC"
        midnight = datetime.fromtimestamp(round(at_s - SKEW_S), self._zone)
        return f"the quota resets at {midnight:%Y-%m-%d %H:%M} {self._zone.key}"

    def back_at_s(self, units: int, now_s: float) -> float:
        """When this many units become free, if other hosts have used up the day's remaining units.

        Without a zone, this is the time at which the first units used on this host become free.
        Units used on other hosts may become free earlier.
        """
        self._look(now_s)
        return now_s + self._free_in_s(units)

    def ready_at_s(self, units: int, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send of this many units is allowed.

        If the result is `now_s`, the units are on disk; this call may have written them. A later
        result is the time at which enough units become free, according to the units known now. If
        the file could not be written (`trouble`), the result is a few seconds from now. If the send
        is larger than the amount, the result is infinity.
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
        # Another run may have taken the units in the meantime.
        return now_s if units <= self._spare else now_s + self._free_in_s(units)

    def reserve(self, units: int, now_s: float) -> DayReservation:
        """Count one send at `now_s`.

        Raises:
            ValueError: This send is not allowed at `now_s` (call `ready_at_s` first).
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
        """Record the units that a send used. Call this when its lease is given back.

        Pass 0 units if the request was not sent. If it was sent, pass 1 to a ledger that counts
        requests. Until this call, the provider may still count the request up to `late_s` after its
        grant, so near midnight it counts on both days. Without this call, the reservation stays.
        You may call this more than once. The file is written only if more units were used than
        reserved.
        """
        self._look(now_s)
        before = reservation.span
        span = before[0], max(before[0] + _CELL_S, _cell_end(self._wall_s + SKEW_S))
        more = units - reservation.units
        self._count(before, -reservation.units)
        self._count(span, units)
        reservation.units, reservation.span = units, span
        if more > self._spare:
            # The units are already used, so they count even if there is no room.
            self._write()
        elif before == self._block or more > 0:
            self._spare -= more

    def close(self, now_s: float) -> None:
        """Write the true count at the normal end of a run. This frees the units written ahead.

        Never raises: if the write fails, these units stay counted.
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
        """Read the wall clock, but only once for all calls with the same `now_s`.

        Such calls belong to the same event in the broker.
        """
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
        """Write this many units ahead, or fewer if there is not enough room.

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
                # If the file was removed during the run, keep the last known units of other runs.
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
        # `_written` keeps old spans: the file still contains them, and otherwise they would look
        # like units of other runs.
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
        """The units used on each day that may be current at `wall_s`, if nothing more is sent."""
        used = dict.fromkeys(self._days((wall_s - SKEW_S, wall_s + SKEW_S + 1), wall_s), 0)
        for span, units in self._sent():
            for day in self._days(span, wall_s):
                if day in used:
                    used[day] += units
        return used

    def _sent(self) -> Iterator[tuple[Span, int]]:
        return chain(self._others.items(), self._ours.items())

    def _days(self, span: tuple[float, float], wall_s: float) -> range:
        """The days on which units of a span count.

        Without a zone, there is only day 0, and only as long as the units still count.
        """
        begin, end = span
        if self._zone is None:
            return range(end + DAY_S > wall_s)
        first, last = (_date(at_s, self._zone).toordinal() for at_s in (begin, end - 1))
        # `last` may be before `first`: in some zones, midnight once occurred twice.
        return range(min(first, last), max(first, last) + 1)

    def _free_in_s(self, units: int) -> float:
        """Seconds until this many units are free, if nothing more is sent."""
        if self._zone is None:
            missing = units - self._room()
            for (_, end), n in sorted(self._sent(), key=lambda one: one[0][1]):
                if end + DAY_S > self._wall_s:
                    missing -= n
                    if missing <= 0:
                        return end + DAY_S - self._wall_s
            return float(DAY_S)
        # Units that already count on both days become free only at the second midnight.
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
