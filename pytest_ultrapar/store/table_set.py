"""The tables of a run, written side by side and put in place together.

Every table is written beside its place, closed and read back before any of them takes the place of
an earlier one: whoever reads a run finds tables that were whole when they came, all of one
compaction. Readers of Parquet take a flipped byte for a value, so its pages have checksums.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import msgspec

from pytest_ultrapar.broker.adaptive.observation import FILE_NAME, read_changes
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.publish import publish, temporary_for
from pytest_ultrapar.store.tables import (
    ATTEMPTS_COLUMNS,
    LIMITS_COLUMNS,
    TRANSCRIPTS_COLUMNS,
    Column,
    attempt_rows,
    limit_row,
    parameter_columns,
    result_row,
    results_columns,
    score_columns,
    transcript_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_ultrapar.records import Case, EpisodeEnded, Grade
    from pytest_ultrapar.store.manifest import Manifest
    from pytest_ultrapar.store.tables import Row


CASES_PER_GROUP = 2_000
TEXT_PER_GROUP = 16 * 2**20
"""Characters of conversation; whichever comes first ends a row group, to keep memory bounded."""
_CHANGES_PER_GROUP = 20_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableSet:
    """Takes cases and episodes one by one, and makes `results`, `attempts` and `transcripts`.

    Args:
        run_dir: Where the tables are to stand.
        manifest: Of the run.
        cases: All planned ones: their parameters are columns.
        grades: All that stand: their scores are columns.

    Attributes:
        n_requests: Rows of `attempts` so far.
        n_maybe_billed: Those of them that brought no answer and may have been billed.
    """

    def __init__(
        self, run_dir: Path, manifest: Manifest, cases: Iterable[Case], grades: Iterable[Grade]
    ) -> None:
        self._manifest = manifest
        self._params = parameter_columns(cases)
        self._scores = score_columns(grades)
        self.n_requests = self.n_maybe_billed = 0
        self._n_pending = 0
        self._text_pending = 0
        self._tables: list[_Table] = []
        try:
            for name, columns in (
                ("results", results_columns(self._params, self._scores)),
                ("attempts", ATTEMPTS_COLUMNS),
                ("transcripts", TRANSCRIPTS_COLUMNS),
            ):
                self._tables.append(_open_table(run_dir, manifest, name, columns))
        except BaseException:
            self.discard()
            raise
        self._results, self._attempts, self._transcripts = self._tables

    @property
    def paths(self) -> list[Path]:
        """Where the tables will stand."""
        return [table.path for table in self._tables]

    def add_graded(
        self, case: Case, grade: Grade, episode: EpisodeEnded | None, *, had_episode: bool
    ) -> None:
        """The case's row, and the conversation that was graded.

        Args:
            case: The planned case.
            grade: The one that stands.
            episode: The one it is about, if there is one that can be read.
            had_episode: Whether there was one.
        """
        row = result_row(
            self._manifest,
            case,
            grade,
            episode,
            had_episode=had_episode,
            params=self._params,
            scores=self._scores,
        )
        self._results.add(row)
        if episode is not None:
            for message in transcript_rows(self._manifest, episode):
                self._transcripts.add(message)
            self._text_pending += sum(len(message.content) for message in episode.messages)
        self._n_pending += 1
        if self._n_pending >= CASES_PER_GROUP or self._text_pending >= TEXT_PER_GROUP:
            self._flush()

    def add_requests(self, episode: EpisodeEnded) -> None:
        """All requests of one episode, graded or not."""
        for row in attempt_rows(self._manifest, episode):
            self._attempts.add(row)
        self.n_requests += len(episode.attempts)
        self.n_maybe_billed += sum(attempt.maybe_billed for attempt in episode.attempts)

    def finish(self) -> None:
        """Close all tables and read them back.

        Raises:
            ResultsError: One does not hold what was written; none was put in place.
        """
        for table in self._tables:
            table.finish()

    def publish(self) -> None:
        """Put the finished tables in their places."""
        for table in self._tables:
            table.publish()

    def discard(self) -> None:
        """Remove what was not put in place."""
        for table in self._tables:
            table.discard()

    def _flush(self) -> None:
        for table in self._tables:
            table.flush()
        self._n_pending = self._text_pending = 0


def write_limits(run_dir: Path, manifest: Manifest) -> Path | None:
    """Write `limits` of a run, or nothing where no limit was estimated.

    Raises:
        ResultsError: The table did not read back as written.
    """
    records = read_changes(run_dir / FILE_NAME)
    if not records:
        return None
    table = _open_table(run_dir, manifest, "limits", LIMITS_COLUMNS)
    try:
        for n, record in enumerate(records, start=1):
            table.add(limit_row(manifest, record))
            if n % _CHANGES_PER_GROUP == 0:
                table.flush()
        table.finish()
        table.publish()
    finally:
        table.discard()
    return table.path


class _Table(Protocol):
    """One table on its way to disk: rows go to a temporary file, which `publish` puts in place.

    Attributes:
        path: Where the table will stand.
        n_rows: Rows added so far.
    """

    path: Path
    n_rows: int

    def add(self, row: Row) -> None:
        """Take one row; its values are in the order of the table's columns."""
        ...

    def flush(self) -> None:
        """Write the rows taken since the last call as one group, to keep memory bounded."""
        ...

    def finish(self) -> None:
        """Close the temporary file and read it back.

        Raises:
            ResultsError: It does not hold what was written.
        """
        ...

    def publish(self) -> None:
        """Let the finished file take the place of an earlier one; whole or not at all."""
        ...

    def discard(self) -> None:
        """Remove the temporary file; harmless after `publish`."""
        ...


def _open_table(run_dir: Path, manifest: Manifest, name: str, columns: Sequence[Column]) -> _Table:
    if manifest.storage_format == "json":
        return _JsonLinesTable(run_dir, name, columns)
    # JSON lines must not pay for pyarrow: 120 ms and 50 MB.
    from pytest_ultrapar.store.parquet import ParquetTable, arrow_schema  # noqa: PLC0415

    return ParquetTable(run_dir, name, arrow_schema(columns, simulated=manifest.simulated))


class _JsonLinesTable:
    """A table as `<name>.jsonl`; timestamps are ISO 8601 in UTC."""

    def __init__(self, directory: Path, name: str, columns: Sequence[Column]) -> None:
        self.path = directory / f"{name}.jsonl"
        self.n_rows = 0
        self._names = [column.name for column in columns]
        self._timestamps = [i for i, each in enumerate(columns) if each.kind == "timestamp"]
        self._temporary = temporary_for(self.path)
        self._temporary.touch(mode=0o600)
        self._file = self._temporary.open("wb")

    def add(self, row: Row) -> None:
        """Write one row as one line."""
        values = dict(zip(self._names, row, strict=True))
        for i in self._timestamps:
            if row[i] is not None:
                values[self._names[i]] = _EPOCH + timedelta(microseconds=_whole(row[i]))
        self._file.write(msgspec.json.encode(values) + b"\n")
        self.n_rows += 1

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def finish(self) -> None:
        """Close the temporary file and read every line of it back.

        Raises:
            ResultsError: It does not hold as many rows as were written.
        """
        self._file.close()
        decode = msgspec.json.Decoder(dict[str, object]).decode
        with self._temporary.open("rb") as file:
            n_found = sum(decode(line).keys() == set(self._names) for line in file)
        if n_found != self.n_rows:
            msg = f"{self._temporary} holds {n_found} rows of {self.n_rows} written"
            raise ResultsError(msg)

    def publish(self) -> None:
        """Let the finished file take the place of an earlier one."""
        publish(self._temporary, self.path)

    def discard(self) -> None:
        """Remove the temporary file; harmless after `publish`."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
