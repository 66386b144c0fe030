"""What holds a limit per day: units (requests or tokens) that are counted, not spaced.

Guarantee: the units that a provider counts are never more than `amount` in any 24 hours, or in any
calendar day of a zone, over any number of consecutive runs, whenever they are killed and whatever
the host's clocks do, as far as the following can be known.

**Time.** Any 24 hours are counted in a time of the ledger's own. It goes on by the smaller of what
wall clock and boot clock have gone on, so a clock that jumps frees nothing early. It may stand
still when the wall clock is set back, never for longer than the time that really went by. Over a
start of the host only the wall clock is left.

**Midnight.** The slower time alone would not do for calendar days. Where it lags, the provider's
new day has begun unseen: what is sent then would be counted for the old day, and the new one would
begin at zero a second time. So units count on the day that it is by the wall clock *and* on the day
that it is by the ledger's time, and both must have room. As long as either of the two is right, no
day has too many. They differ only after the wall clock has jumped, until nothing is counted any
more. Within `SKEW_S` of midnight both days must have room, as the provider's clock is not ours.

**When units were sent** is known as a span: from the grant to the answer, or `late_s` after the
grant as long as there is none. They count from the begin of the span, and the day begins at its
end. Spans begin and end at the bounds of cells (`_cell`), so that the file stays small.

**Written ahead.** Units are granted out of a block that is in the file, as sent at any time of the
present cell and `late_s` more. With the next write only what was really sent stays in, and with
`settle` what was really used; a killed run's last block stays as if it had been used. So the file
never counts less than what was sent. A block is a fiftieth of the amount: a kill costs at most 2 %
of a day and what was in flight, and a whole day's amount some 50 writes of 0.6 ms (40 ms on a disk
that spins: 2 s).

**On the loop.** A write stops the loop that the broker runs on: for 0.8 ms in the median of 300 on
a quiet virtual disk (9 ms at worst), for 6 to 10 ms while others keep that disk busy (67 ms). There
is one for each block, and one a minute and file while requests go on. With xdist only the broker's
process waits. Without, answers that take seconds are read some milliseconds later, once a minute
and key. A thread would save that at the price of one more state for each lane, which waits for its
block, as no send may leave before that is on disk. The lock is held for one write, and the wait
for it is as long; the 2 s that it may last are for a machine that stalls.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.day_file import DayRecord
from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from pytest_ultrapar.broker.day_file import DayMemory, Span
    from pytest_ultrapar.clock import DayClock, Instant

SKEW_S = 5
"""By so much a provider's midnight may differ from ours."""
DAY_S = 86_400 + 60
"""Over which any 24 hours are counted: NTP may slow or hasten a clock by 500 ppm, 43 s per day."""
_KEPT_S = 26 * 3600
"""For how long a file keeps what was sent: the longest day of a zone has 25 hours."""
_BLOCKS = 50
"""Blocks per amount."""
_QUARTER_S = 900
_BOUNDS = (0, SKEW_S, *range(60, _QUARTER_S, 60), _QUARTER_S - SKEW_S, _QUARTER_S)
"""Of cells within a quarter of an hour."""
_ANCHOR_S = 60.0
"""How often the clocks' progress is added up. Each time costs what the two readings lie apart, some
µs; a wall clock that is set back in between costs the progress since the last one."""
_RETRY_S = 5.0
"""How long a file that could not be written is left alone."""


class DayReservation:
    """Units of one send; what `DayLedger.reserve` returns and `settle` wants back.

    Attributes:
        units: Reserved; what was used once that is known.
        span: When they were sent, as far as that is known.
    """

    __slots__ = ("span", "units")

    def __init__(self, units: int, span: Span) -> None:
        self.units = units
        self.span = span


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
            clock: The host's clocks.
            now_s: Now.
            zone: Where days begin at midnight; None counts any 24 hours.
            memory: Where the count is kept over runs; None keeps it in this object only.
            late_s: How long after its grant a request may still be counted by the provider, as long
                as nobody knows what became of it: the longest that a request may take.

        Raises:
            ConfigError: The memory cannot be read or trusted.
        """
        if amount < 1:
            msg = f"amount must be >= 1 (got {amount!r})"
            raise ValueError(msg)
        self.amount = amount
        self.trouble = ""
        self.failing_since_s = math.inf
        self._clock = clock
        self._zone = zone
        self._memory = memory
        self._late_s = late_s
        # What was sent: by earlier runs and others, as it was read and as far as it still counts;
        # by us, and what of ours is in the file.
        self._read: Counter[Span] = Counter()
        self._others: Counter[Span] = Counter()
        self._ours: Counter[Span] = Counter()
        self._written: Counter[Span] = Counter()
        # Units in the file that may be granted while it is `_block`'s cell.
        self._spare = 0
        self._block: Span = (0, 0, 0, 0)
        # Units counted on each day that matters now, until the time of the next change.
        self._used: dict[int, int] = {}
        self._used_until_s = -math.inf
        self._retry_s = -math.inf
        self._now_s = now_s
        self._instant = self._anchor = clock.at(now_s)
        # Which setting of the file's time ours is; none before the first write.
        self._frame = -1
        self._time_s = self._anchor_time_s = self._instant.wall_s
        found = memory.read(self._instant) if memory is not None else None
        if found is not None:
            self._learn(found)
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
        at_s = self._instant.wall_s + self._free_in_s(units)
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
            msg = f"a send of {units} units at {now_s!r} s is {ready_s - now_s:.6f} s too early"
            raise ValueError(msg)
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
        more = units - reservation.units
        if more > self._spare:
            try:
                # It has been sent, so there is no question of room.
                self._draw(more, is_sent=True)
            except ConfigError as error:
                self.trouble = str(error)
        if before == self._block or more > 0:
            self._spare = max(0, self._spare - more)
        time_end, wall_end = _cell(self._time_s)[1], _cell(self._instant.wall_s)[1]
        # The wall clock may have been set back since.
        span = (before[0], max(before[0] + 1, time_end), before[2], max(before[2] + 1, wall_end))
        self._count(before, -reservation.units)
        self._count(span, units)
        reservation.units = units
        reservation.span = span

    def close(self, now_s: float) -> None:
        """Write what is known now, which gives back what was written ahead; for an orderly end.

        Never raises: what cannot be written stays counted.
        """
        self._look(now_s)
        if self._written == self._ours:
            return
        try:
            self._draw(0)
        except ConfigError as error:
            self.trouble = str(error)

    def _look(self, now_s: float) -> None:
        """Read the clocks; all that one event of the broker asks happens at one instant."""
        if now_s != self._now_s:
            self._now_s = now_s
            self._instant = now = self._clock.at(now_s)
            gone_s = _progress_s(self._anchor, now)
            self._time_s = max(self._time_s, self._anchor_time_s + max(0.0, gone_s))
            if not 0.0 <= gone_s < _ANCHOR_S:
                self._anchor, self._anchor_time_s = now, self._time_s
        if self._block != self._span_now():
            self._spare = 0
            self._block = self._span_now()
            self._used_until_s = -math.inf
        if self._time_s >= self._used_until_s:
            self._add_up()

    def _span_now(self) -> Span:
        begin, end = _cell(self._time_s)
        wall_begin, wall_end = _cell(self._instant.wall_s)
        late_s = self._late_s
        return begin, _cell(end + late_s)[1], wall_begin, _cell(wall_end + late_s)[1]

    def _learn(self, found: DayRecord) -> None:
        """Take over what the file says, time included."""
        then = self._anchor._replace(
            wall_s=found.wall_s, boot_s=found.boot_s, boot_id=found.boot_id
        )
        time_s = found.time_s + max(0.0, _progress_s(then, self._instant))
        others = Counter({(a, b, c, d): units for a, b, c, d, units in found.sent})
        others.subtract(self._written)
        others, known = +others, self._read
        self._read = others.copy()
        self._others = others
        if found.frame == self._frame:
            # Ours and the file's are both no later than the true time, so the later one is nearer
            # to it. But what others have sent since we looked stands there in their time. That of a
            # run that began after the wall clock was set back may lag by hours, and by ours its
            # units would come free as much too early.
            time_s = (max if others <= known else min)(time_s, self._time_s)
        self._frame, self._time_s = found.frame, time_s
        self._forget()
        if not any(units for _, units in self._sent()):
            # Nothing is counted that a wrong clock could free.
            self._frame, self._time_s = -1, self._instant.wall_s
        self._anchor, self._anchor_time_s = self._instant, self._time_s
        self._used_until_s = -math.inf

    def _draw(self, units: int, *, is_sent: bool = False) -> None:
        """Have so many units in the file ahead, or fewer where there is no room.

        Raises:
            ConfigError: The file cannot be read or written.
        """
        if self._memory is None:
            self._spare = units if is_sent else self._room()
            return

        wanted: Counter[Span] = Counter()

        def change(found: DayRecord | None) -> DayRecord:
            nonlocal wanted
            if found is not None:
                # A file that was removed while we run would otherwise take others' units with it.
                self._learn(found)
                self._look(self._now_s)
            if self._frame < 0:
                self._frame = 0 if found is None else found.frame + 1
            ahead = units if is_sent else max(0, min(units, self._room()))
            wanted = self._ours + Counter({self._block: ahead})
            self._spare = 0
            sent = sorted((*span, n) for span, n in (self._others + wanted).items())
            assert self._memory is not None
            return DayRecord(self._memory.shown, self._frame, self._time_s, *self._instant, sent)

        self._memory.update(self._instant, change)
        self._spare = wanted[self._block] - self._ours[self._block]
        self._written = wanted
        self.trouble = ""
        self.failing_since_s = math.inf

    def _forget(self) -> None:
        # Not in `_written` and `_read`: what the file still holds would be taken for another run's.
        for counter in (self._others, self._ours):
            for span in [span for span in counter if span[1] + _KEPT_S <= self._time_s]:
                del counter[span]

    def _count(self, span: Span, units: int) -> None:
        self._ours[span] += units
        for day in self._days(span, self._time_s):
            if day in self._used:
                self._used[day] += units

    def _room(self) -> int:
        return self.amount - max(self._used.values())

    def _add_up(self) -> None:
        self._forget()
        self._used = self._used_at(self._time_s, self._instant.wall_s)
        ends = (end + DAY_S for (_, end, _, _), _ in self._sent())
        self._used_until_s = min((end for end in ends if end > self._time_s), default=math.inf)

    def _used_at(self, time_s: float, wall_s: float) -> dict[int, int]:
        """Units on each day that it is at a time, if nothing more is sent until then."""
        now = (*_cell(time_s), *_cell(wall_s))
        used = dict.fromkeys(self._days(now, time_s), 0)
        for span, units in self._sent():
            for day in self._days(span, time_s):
                if day in used:
                    used[day] += units
        return used

    def _sent(self) -> Iterator[tuple[Span, int]]:
        return chain(self._others.items(), self._ours.items())

    def _days(self, span: Span, time_s: float) -> set[int]:
        """The days on which units of a span count; without a zone, whether they do at all."""
        if self._zone is None:
            return {0} if span[1] + DAY_S > time_s else set()
        if span[1] + _KEPT_S <= time_s:
            return set()
        days: set[int] = set()
        for begin, end in (span[:2], span[2:]):
            first, last = (
                datetime.fromtimestamp(at_s, self._zone).toordinal()
                for at_s in (begin - SKEW_S, end + SKEW_S - 1)
            )
            # Either way round: there were zones whose midnight came twice.
            days.update(range(min(first, last), max(first, last) + 1))
        return days

    def _free_in_s(self, units: int) -> float:
        """Seconds until so many units are free, if nothing more is sent until then."""
        now_s, wall_s = self._time_s, self._instant.wall_s
        if self._zone is None:
            missing = units - self._room()
            for (_, end, _, _), n in sorted(self._sent(), key=lambda one: one[0][1]):
                if end + DAY_S > now_s:
                    missing -= n
                    if missing <= 0:
                        return end + DAY_S - now_s
            return float(DAY_S)
        changes = []
        for clock_s in (now_s, wall_s):
            midnight = _next_midnight(clock_s, self._zone)
            # The one after it is for what counts on both days already.
            both = midnight, _next_midnight(midnight, self._zone)
            changes += [at_s + SKEW_S - clock_s for at_s in both]
        for in_s in sorted(changes):
            if units + max(self._used_at(now_s + in_s, wall_s + in_s).values()) <= self.amount:
                return in_s
        return float(_KEPT_S)


def _progress_s(since: Instant, now: Instant) -> float:
    wall_s = now.wall_s - since.wall_s
    return min(wall_s, now.boot_s - since.boot_s) if now.boot_id == since.boot_id else wall_s


def _cell(at_s: float) -> tuple[int, int]:
    """The bounds of the cell that holds a time: minutes, and less around a possible midnight.

    That of every zone of today is at a quarter of an hour. Only who sends within `SKEW_S` of it
    sends on two days.
    """
    quarter = math.floor(at_s / _QUARTER_S) * _QUARTER_S
    above = bisect_right(_BOUNDS, at_s - quarter)
    return quarter + _BOUNDS[above - 1], quarter + _BOUNDS[above]


def _next_midnight(at_s: float, zone: ZoneInfo) -> int:
    """When the next day begins, be it at midnight or, where that is skipped, an hour later."""

    def day(second: int) -> int:
        return datetime.fromtimestamp(second, zone).toordinal()

    low = math.floor(at_s)
    today, high = day(low), low + _KEPT_S
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if day(middle) <= today else (low, middle)
    return high
