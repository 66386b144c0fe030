"""Report to the ledger how many units of daily limits a host has used outside the cluster.

A host counts the units of each day in files, for all its runs together (`broker.day_ledger`). For
each daily limit, a cluster run has a second file, with the units that the ledger already knows.
When a host joins, it reports the units that are only in the first file, and adds them to the second
file. If the host is killed in between, it reports the same units again in its next run. The count
may then be too high, but never too low. The ledger counts these units from the time of the report,
so they become free later than they would without a cluster.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.day_file import DayMemory, DayRecord, Span
from pytest_ultrapar.broker.day_ledger import DAY_S
from pytest_ultrapar.errors import UltraparError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.daily_limits import DailyLimit
    from pytest_ultrapar.cluster.ledger_rows import SharedRows

Spans = Counter[Span]
"""The number of units sent in each time span. The start and the end of a span are wall-clock
times."""


class DayFiles(msgspec.Struct, frozen=True):
    """The two files of one counted row.

    Attributes:
        directory: The directory of both files.
        whole: The name of the file that counts all units.
        told: The name of the file with the units that the ledger knows.
        shown: The name of the counted units, for messages.
        zone: The time zone of the row's calendar days; empty if the limit applies to any 24 hours.
    """

    directory: str
    whole: str
    told: str
    shown: str
    zone: str = ""

    def untold(self, wall_s: float) -> Spans:
        """Return the units that the ledger does not know and that still count at this time.

        Raises:
            ConfigError: A file cannot be read or trusted.
        """
        whole, told = (_spans(self._memory(name).read()) for name in (self.whole, self.told))
        return Counter({span: n for span, n in (whole - told).items() if span[1] + DAY_S > wall_s})

    def tell(self, spans: Spans) -> None:
        """Record that the ledger knows these units.

        Raises:
            ConfigError: The file cannot be read or written.
        """

        def change(found: DayRecord | None) -> DayRecord:
            return DayRecord.of(self.shown, _spans(found) + spans)

        self._memory(self.told).update(change)

    def on_day(self, spans: Mapping[Span, int], day: str) -> int:
        """Return how many of the units count on a day, which is named as in `CountedRow.days`."""
        if not self.zone:
            return sum(spans.values())
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - few pools count days of a calendar

        zone = ZoneInfo(self.zone)

        def date(at_s: int) -> str:
            return datetime.fromtimestamp(at_s, UTC).astimezone(zone).date().isoformat()

        return sum(n for (a, b), n in spans.items() if date(a) <= day <= date(b - 1))

    def _memory(self, name: str) -> DayMemory:
        return DayMemory(Path(self.directory), name, self.shown)


class EarlierDailyUse:
    """The part of a host's daily use that the ledger does not know yet."""

    def __init__(self, files: Sequence[DayFiles | None]) -> None:
        """Start without any units; `read` reads the files.

        Args:
            files: The files of each row; None for a row without files.
        """
        self._files = files
        self._untold: dict[int, tuple[DayFiles, Spans]] = {}
        self._is_told = False

    def read(self, wall_s: float) -> None:
        """Read the units to report. Called once, before the first call to the ledger.

        Raises:
            ConfigError: A file cannot be read or trusted.
        """
        for at, files in enumerate(self._files):
            if files is not None and (spans := files.untold(wall_s)):
                self._untold[at] = files, spans

    def spent(self, at: int, day: str) -> int:
        """Return how many of a row's units count on this day and were spent before the host joined.

        `at` is the position of the row.
        """
        files, spans = self._untold.get(at, (None, {}))
        return 0 if files is None else files.on_day(spans, day)

    def told(self) -> None:
        """Record that the ledger now knows all these units. Idempotent.

        If a file cannot be written, the next run reports its units again: the count may be too
        high, never too low.
        """
        if self._is_told:
            return
        self._is_told = True
        for files, spans in self._untold.values():
            with suppress(UltraparError):
                files.tell(spans)


def day_files(
    rows: SharedRows, days: Iterable[DailyLimit], label: str
) -> tuple[DayFiles | None, ...]:
    """Return the files of each row; None for rows without files.

    Args:
        rows: The shared rows.
        days: The run's daily limits. If a limit is counted for the cluster, the name of its file
            ends with `label`.
        label: The suffix for the names of the cluster's files.
    """
    names = {(one.limit, one.word): one for one in days if one.name.endswith(label)}
    found: list[DayFiles | None] = []
    for limit, row in zip(rows.limits, rows.counted, strict=True):
        own = names.get(limit)
        if own is None or row is None:
            found.append(None)
            continue
        whole = own.name.removesuffix(f"-{label}")
        found.append(DayFiles(own.directory, whole, own.name, own.shown, row.zone))
    return tuple(found)


def _spans(record: DayRecord | None) -> Spans:
    return Counter() if record is None else record.spans()
