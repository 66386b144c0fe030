"""The tables of a run, written side by side and put in place together.

Every table is written beside its place, closed and read back before any of them takes the place of
an earlier one: whoever reads a run finds tables that were whole when they came, all of one
compaction. Readers of Parquet take a flipped byte for a value, so its pages have checksums.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE, LimitRecord
from pytest_ultrapar.broker.health import PAUSES_FILE, PauseRecord
from pytest_ultrapar.broker.history import read_history
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.store.cost import Prices, RoleUses
from pytest_ultrapar.store.parquet import ParquetTable, Rows, Table, arrow_column, arrow_schema
from pytest_ultrapar.store.tables import (
    ATTEMPTS_COLUMNS,
    COLUMNS,
    EPISODE_COLUMNS,
    TRANSCRIPTS_COLUMNS,
    Column,
    Row,
    attempt_rows,
    limit_row,
    pause_row,
    result_row,
    results_columns,
    transcript_rows,
)
from pytest_ultrapar.system.files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.records import Case, EpisodeEnded, Grade, TurnMessage
    from pytest_ultrapar.store.journal import Position
    from pytest_ultrapar.store.manifest import Manifest


CASES_PER_GROUP = 2_000
TEXT_PER_GROUP = 16 * 2**20
"""Characters of conversation; whichever comes first ends a row group, to keep memory bounded."""
TEXT_KEPT = 64 * 2**20
"""So many characters of conversation are kept as columns while a run goes on; what came after them
is read from the journal once more when the tables are written."""


class EpisodeRows(NamedTuple):
    """Where the rows of an episode are.

    Attributes:
        attempts: In `attempts`.
        messages: In `transcripts`; None where they are not kept.
        n_characters: Of its conversation.
    """

    attempts: range
    messages: range | None
    n_characters: int


class CaseRows(NamedTuple):
    """The rows of one case, as they go into the tables.

    Attributes:
        result: In `results`; None for a case without a grade.
        episodes: All of it, in the order of `attempts`.
        graded: The one whose conversation goes into `transcripts`, if there is one.
        position: Where that stands in the journal.
    """

    result: int | None
    episodes: Sequence[EpisodeRows]
    graded: EpisodeRows | None = None
    position: Position | None = None


class TableSet:
    """Takes episodes and grades in any order, and makes `results`, `attempts` and `transcripts`.

    Args:
        manifest: Of the run.
        params: What `parameter_columns` found in all planned cases.
        messages: What was said in an episode.

    Attributes:
        params: As given.
        n_maybe_billed: Requests so far that brought no answer and may have been billed.
        prices: What its requests cost so far.
        replayed: How often answers of an earlier run were given so far, by `Attempt.replayed`.
        roles: What was asked of roles so far.
    """

    def __init__(
        self,
        manifest: Manifest,
        params: Sequence[Column],
        messages: Callable[[EpisodeEnded], Sequence[TurnMessage]],
    ) -> None:
        self._manifest = manifest
        self._messages = messages
        self.params = params
        self._n_attempts = 0
        self.prices = Prices(manifest)
        self.roles = RoleUses()
        self.n_maybe_billed = 0
        self.replayed: Counter[str] = Counter()
        self.clear()

    def clear(self) -> None:
        """Let go of all rows; what is known of them in sum stays."""
        pa.default_memory_pool().release_unused()
        self._results = self._rows(results_columns(self.params, ()))
        self._attempts = self._rows(ATTEMPTS_COLUMNS)
        self._transcripts = self._rows(TRANSCRIPTS_COLUMNS)
        self._grades: list[Grade] = []
        self._n_characters = 0

    def _rows(self, columns: Sequence[Column]) -> Rows:
        return Rows(arrow_schema(columns, simulated=self._manifest.simulated))

    @property
    def n_requests(self) -> int:
        """Requests sent so far."""
        return self._n_attempts - sum(self.replayed.values())

    def add_episode(self, episode: EpisodeEnded) -> EpisodeRows:
        """Take the requests and the conversation of one episode, graded or not."""
        begin = self._attempts.n
        for row in attempt_rows(self._manifest, episode, self.prices):
            self._attempts.add(row)
            self._n_attempts += 1
        self.prices.add(episode.attempts)
        self.replayed.update(one.replayed for one in episode.attempts if one.replayed is not None)
        self.roles.add(episode.sent, self.prices)
        self.n_maybe_billed += sum(attempt.maybe_billed for attempt in episode.attempts)
        messages = self._messages(episode)
        n_characters = sum(len(message.content) for message in messages)
        self._n_characters += n_characters
        kept = self._n_characters <= TEXT_KEPT
        rows = self._add_messages(episode, messages) if kept else None
        return EpisodeRows(range(begin, self._attempts.n), rows, n_characters)

    def _add_messages(self, episode: EpisodeEnded, messages: Sequence[TurnMessage]) -> range:
        begin = self._transcripts.n
        for row in transcript_rows(self._manifest, episode, messages):
            self._transcripts.add(row)
        return range(begin, self._transcripts.n)

    def add_result(
        self, case: Case, grade: Grade, episode: EpisodeEnded | None, *, had_episode: bool
    ) -> int:
        """Take a case's grade; returns its row of `results`.

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
            params=self.params,
            prices=self.prices,
        )
        self._results.add(row)
        self._grades.append(grade)
        return self._results.n - 1

    def rows_of(
        self,
        group: Sequence[CaseRows],
        scores: Sequence[Column],
        read: Callable[[Position], EpisodeEnded | None],
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Rows of some cases in `results`, `attempts` and `transcripts`."""
        return (
            self._result_rows(group, scores),
            self._attempt_rows(group),
            self._message_rows(group, read),
        )

    def _result_rows(self, group: Sequence[CaseRows], scores: Sequence[Column]) -> pa.Table:
        places = [case.result for case in group if case.result is not None]
        rows = self._results.take(places)
        at = rows.schema.get_field_index(EPISODE_COLUMNS[0].name)
        for number, column in enumerate(scores):
            name = column.name.partition(".")[2]
            values = [self._grades[place].scores.get(name) for place in places]
            rows = rows.add_column(at + number, *arrow_column(column, values))
        return rows

    def _attempt_rows(self, group: Sequence[CaseRows]) -> pa.Table:
        return self._attempts.take(
            [place for case in group for rows in case.episodes for place in rows.attempts]
        )

    def _message_rows(
        self, group: Sequence[CaseRows], read: Callable[[Position], EpisodeEnded | None]
    ) -> pa.Table:
        n_kept = self._transcripts.convert()
        places: list[int] = []
        for case in group:
            if case.graded is None or case.position is None:
                continue
            messages = case.graded.messages
            if messages is None:
                episode = read(case.position)
                messages = range(0)
                if episode is not None:
                    messages = self._add_messages(episode, self._messages(episode))
            places.extend(messages)
        rows = self._transcripts.take(places)
        self._transcripts.forget(n_kept)
        return rows


class TableFiles:
    """`results`, `attempts` and `transcripts` while they are written, beside their places.

    Args:
        run_dir: Where they are to stand.
        manifest: Of the run.
        params: From `parameter_columns`.
        scores: From `score_columns`.
    """

    def __init__(
        self, run_dir: Path, manifest: Manifest, params: Sequence[Column], scores: Sequence[Column]
    ) -> None:
        self._scores = scores
        # What is left where one cannot be opened goes with the next compaction.
        self._tables = [
            _open_table(run_dir, manifest, "results", results_columns(params, scores)),
            _open_table(run_dir, manifest, "attempts", ATTEMPTS_COLUMNS),
            _open_table(run_dir, manifest, "transcripts", TRANSCRIPTS_COLUMNS),
        ]

    def write(
        self,
        rows: TableSet,
        cases: Iterable[CaseRows],
        read: Callable[[Position], EpisodeEnded | None],
    ) -> None:
        """Write the rows of some cases.

        Args:
            rows: Has them.
            cases: In the order of their rows.
            read: Gives an episode of the journal, or None where it cannot be read any more.
        """
        for group in _groups(cases):
            found = rows.rows_of(group, self._scores, read)
            for table, own in zip(self._tables, found, strict=True):
                table.write(own)

    def publish(self) -> list[Path]:
        """Read all back and put them in their places together; returns where they stand.

        Raises:
            ResultsError: One does not hold what was written; none was put in place.
        """
        for table in self._tables:
            table.finish()
        for table in self._tables:
            table.publish()
        return [table.path for table in self._tables]

    def discard(self) -> None:
        """Remove what was not put in place; harmless after `publish`."""
        for table in self._tables:
            table.discard()


def _groups(cases: Iterable[CaseRows]) -> Iterator[list[CaseRows]]:
    """The cases of each row group."""
    group: list[CaseRows] = []
    n_results = n_characters = 0
    for case in cases:
        group.append(case)
        n_results += case.result is not None
        n_characters += case.graded.n_characters if case.graded is not None else 0
        if n_results >= CASES_PER_GROUP or n_characters >= TEXT_PER_GROUP:
            yield group
            group, n_results, n_characters = [], 0, 0
    yield group


def write_histories(run_dir: Path, manifest: Manifest) -> list[Path]:
    """Write `limits` and `pauses` of a run, each where it has rows; returns what was written.

    Raises:
        ResultsError: A table did not read back as written.
    """
    changes = read_history(run_dir / LIMITS_FILE, LimitRecord)
    pauses = read_history(run_dir / PAUSES_FILE, PauseRecord)
    found = {
        "limits": [limit_row(manifest, record) for record in changes],
        "pauses": [pause_row(manifest, record) for record in pauses],
    }
    return [_write_history(run_dir, manifest, name, own) for name, own in found.items() if own]


def _write_history(run_dir: Path, manifest: Manifest, name: str, found: Sequence[Row]) -> Path:
    table = _open_table(run_dir, manifest, name, COLUMNS[name])
    rows = Rows(arrow_schema(COLUMNS[name], simulated=manifest.simulated))
    try:
        for row in found:
            rows.add(row)
        table.write(rows.take(range(rows.n)))
        table.finish()
        table.publish()
    finally:
        table.discard()
    return table.path


def _open_table(run_dir: Path, manifest: Manifest, name: str, columns: Sequence[Column]) -> Table:
    if manifest.storage_format == "json":
        return _JsonLinesTable(run_dir / f"{name}.jsonl")
    return ParquetTable(run_dir, name, arrow_schema(columns, simulated=manifest.simulated))


class _JsonLinesTable(Table):
    """A table as `<name>.jsonl`; timestamps are ISO 8601 in UTC."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = self._temporary.open("wb")

    def write(self, rows: pa.Table) -> None:
        """Write each row as one line."""
        for row in rows.to_pylist():
            self._file.write(msgspec.json.encode(row) + b"\n")
        self._n_rows += rows.num_rows

    def finish(self) -> None:
        """Close the temporary file and read every line of it back.

        Raises:
            ResultsError: It does not hold as many rows as were written.
        """
        self._file.close()
        decode = msgspec.json.Decoder(dict[str, object]).decode
        with open_file(self._temporary) as file:
            n_found = sum(bool(decode(line)) for line in file)
        if n_found != self._n_rows:
            msg = f"{self._temporary} holds {n_found} rows of {self._n_rows} written"
            raise ResultsError(msg)
