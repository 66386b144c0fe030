"""What a host has spent of its days where the ledger did not see it: in runs without the cluster.

A host counts its days in files, whoever spends them (`broker.day_ledger`). A run of a cluster has a
second file for each, of what the ledger knows. What only the first has is told to the ledger when a
host joins, and then stands in both. A host that is killed in between tells it again: too much is
counted, never too little. The ledger counts it from now on, so it comes back later than it would.
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
    from pytest_ultrapar.cluster.rows import SharedRows

Spans = Counter[Span]
"""Units by when they were sent, from and until by the wall clock."""


class DayFiles(msgspec.Struct, frozen=True):
    """The two files of one counted row.

    Attributes:
        directory: Of both.
        whole: Name of that which counts all.
        told: Name of that which has what the ledger knows.
        shown: What is counted, for people.
        zone: Where its days begin at midnight; empty: any 24 hours.
    """

    directory: str
    whole: str
    told: str
    shown: str
    zone: str = ""

    def untold(self, wall_s: float) -> Spans:
        """What the ledger does not know and still counts at a time.

        Raises:
            ConfigError: A file cannot be read or trusted.
        """
        whole, told = (_spans(self._memory(name).read()) for name in (self.whole, self.told))
        return Counter({span: n for span, n in (whole - told).items() if span[1] + DAY_S > wall_s})

    def tell(self, spans: Spans) -> None:
        """Remember that the ledger knows these.

        Raises:
            ConfigError: The file cannot be read or written.
        """

        def change(found: DayRecord | None) -> DayRecord:
            return DayRecord.of(self.shown, _spans(found) + spans)

        self._memory(self.told).update(change)

    def on_day(self, spans: Mapping[Span, int], day: str) -> int:
        """Units that count on a day, as `CountedRow.days` calls it."""
        if not self.zone:
            return sum(spans.values())
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - few pools count days of a calendar

        zone = ZoneInfo(self.zone)

        def date(at_s: int) -> str:
            return datetime.fromtimestamp(at_s, UTC).astimezone(zone).date().isoformat()

        return sum(n for (a, b), n in spans.items() if date(a) <= day <= date(b - 1))

    def _memory(self, name: str) -> DayMemory:
        return DayMemory(Path(self.directory), name, self.shown)


class DaysBefore:
    """What the ledger does not know yet of a host's days."""

    def __init__(self, files: Sequence[DayFiles | None]) -> None:
        """Know nothing.

        Args:
            files: Of each row; None: it has none.
        """
        self._files = files
        self._untold: dict[int, tuple[DayFiles, Spans]] = {}
        self._is_told = False

    def read(self, wall_s: float) -> None:
        """Read what is to be told. Called once, before the ledger is.

        Raises:
            ConfigError: A file cannot be read or trusted.
        """
        for at, files in enumerate(self._files):
            if files is not None and (spans := files.untold(wall_s)):
                self._untold[at] = files, spans

    def spent(self, at: int, day: str) -> int:
        """Units of a row, by its position, that count on a day and were spent before."""
        files, spans = self._untold.get(at, (None, {}))
        return 0 if files is None else files.on_day(spans, day)

    def told(self) -> None:
        """Note that the ledger knows it all now. Idempotent.

        Where a file cannot be written, the next run tells it once more: too much, never too little.
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
    """The files of each row; None for rows that have none.

    Args:
        rows: Those that are shared.
        days: What counts the run's days, with `label` behind the names of what the ledger knows.
        label: What the names of a cluster's own counts end with.
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
