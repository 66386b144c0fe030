"""Write the tables of a run to temporary files, and publish them together.

Each table is written next to its final place, closed and read back before any table replaces an
earlier one. So a reader finds whole tables, all from the same compaction. Without checksums,
Parquet readers accept a flipped byte as a value, so the pages have checksums.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE, LimitChange, LimitRecord
from pytest_ultrapar.broker.health import PAUSES_FILE, LanePause, PauseRecord
from pytest_ultrapar.broker.limit_history import read_history
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import (
    ASKED_FOR,
    NO_VALUE,
    Attempt,
    Case,
    EpisodeEnded,
    Grade,
    TurnMessage,
    by_key,
)
from pytest_ultrapar.store.cost import Prices, RoleUses
from pytest_ultrapar.store.manifest import Manifest
from pytest_ultrapar.store.parquet import (
    ParquetTable,
    Rows,
    Table,
    arrow_array,
    arrow_schema,
    field_of,
)
from pytest_ultrapar.store.tables import (
    ATTEMPTS_COLUMNS,
    COLUMNS,
    KEPT_COLUMNS,
    TRANSCRIPTS_COLUMNS,
    UNKNOWN,
    UNREADABLE,
    Charged,
    Column,
    Placed,
    Spent,
    case_values,
    charged,
    columns_of,
    fit,
    grade_values,
    placed,
    results_columns,
    spent_by,
)
from pytest_ultrapar.system.files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.store.journal import Position


CASES_PER_GROUP = 5_000
TEXT_PER_GROUP = 16 * 2**20
"""A row group ends after `CASES_PER_GROUP` cases, or earlier if it contains this many characters of
conversation. This limits the use of memory."""
TEXT_KEPT = 64 * 2**20
"""How many characters of conversation are kept as columns during a run. The rest is read from the
journal again when the tables are written."""

_OF_NO_PLAN = SimpleNamespace(model=None, suite=None)
_OF_LIMIT = (Manifest, LimitRecord, LimitChange, Placed)
_OF_PAUSE = (Manifest, PauseRecord, LanePause, Placed)
_texts_of = attrgetter(*(one.name for one in columns_of(TurnMessage) if one.kind == "string"))
"""Returns all texts in a message. All count, because others may be longer than the content."""


class StoredEpisode(NamedTuple):
    """The facts that are kept about an episode.

    Attributes:
        position: Its position in the journal.
        row: Its row among the kept episodes.
        requests: The range of its requests in the `RequestLog`.
        attempts: Its rows in `attempts`.
        messages: Its rows in `transcripts`; None if these rows are not kept in memory.
        n_characters: The number of characters in its conversation.
    """

    position: Position
    row: int
    requests: range
    attempts: range
    messages: range | None
    n_characters: int


class Ended(NamedTuple):
    """A case that has records in the journal.

    Attributes:
        number: The number of the planned case; -1 if it is not planned.
        grade: The grade that counts; None for a case without a row in `results`.
        episodes: All readable episodes, in the order in which they ended.
        graded: The episode that was graded; None if it is not among `episodes`.
        row: The row of `graded` or, without one, of its substitute.
    """

    number: int
    grade: Grade | None
    episodes: Sequence[StoredEpisode]
    graded: StoredEpisode | None
    row: int


class TableSet:
    """Makes the rows of `results`, `attempts` and `transcripts`; takes episodes in any order.

    Args:
        manifest: The manifest of the run.
        params: The result of `parameter_columns` for all planned cases.
        messages: Returns the messages of an episode.

    Attributes:
        params: As given.
        n_maybe_billed: How many requests so far got no answer but may have been billed.
        prices: The cost of the requests so far.
        replayed: How many stored answers were used so far, for each value of `Attempt.replayed`.
        n_resumed: How many interrupted conversations so far continued from their stored answers.
        n_strayed: How many interrupted conversations so far sent a different request when they
            continued.
        roles: The requests to roles so far.
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
        self.n_resumed = self.n_strayed = 0
        self.clear()

    def clear(self) -> None:
        """Drop all rows, but keep the counts and costs."""
        pa.default_memory_pool().release_unused()
        rows = partial(Rows, simulated=self._manifest.simulated)
        self._episodes = rows(KEPT_COLUMNS, Spent, EpisodeEnded, Charged, Placed)
        kinds = Manifest, EpisodeEnded, Attempt, Charged, Placed, Case
        self._attempts = rows(ATTEMPTS_COLUMNS, *kinds)
        self._transcripts = rows(TRANSCRIPTS_COLUMNS, Manifest, EpisodeEnded, TurnMessage)
        self._n_characters = 0

    @property
    def n_requests(self) -> int:
        """The number of requests sent so far."""
        return self._n_attempts - sum(self.replayed.values())

    def add_episode(
        self, case: Case | None, position: Position, episode: EpisodeEnded, requests: range
    ) -> StoredEpisode:
        """Add one episode, graded or not.

        Args:
            case: Its case; None if the case is no longer planned.
            position: Its position in the journal.
            episode: The record of the episode.
            requests: The range of its requests in the `RequestLog`.
        """
        manifest, attempts, prices = self._manifest, episode.attempts, self.prices
        place = placed(manifest, episode)
        begin = self._attempts.n
        # Pending rows must not keep whole conversations in memory.
        head = msgspec.structs.replace(
            episode, value=NO_VALUE, messages=[], exchanges=[], stdout="", log="", detail=None
        )
        for each in attempts:
            cost = charged(prices.of(each))
            self._attempts.add(manifest, head, each, cost, place, case or _OF_NO_PLAN)
            if each.replayed is not None:
                self.replayed[each.replayed] += 1
            self.n_maybe_billed += each.maybe_billed
        if episode.began_us and episode.ending != "interrupted":
            self.n_strayed += episode.n_unused > 0
            self.n_resumed += episode.n_unused == 0
        self._n_attempts += len(attempts)
        asked = case.params if case is not None and manifest.asked_by_others else {}
        prices.add(attempts, str(asked.get(ASKED_FOR, "")))
        self.roles.add(attempts, prices)
        messages = self._messages(episode)
        n_characters = sum([len(text) for each in messages for text in _texts_of(each) if text])
        self._n_characters += n_characters
        is_kept = self._n_characters <= TEXT_KEPT
        return StoredEpisode(
            position,
            self._episodes.add(
                spent_by(episode), head, charged(prices.of_all(episode.own_attempts)), place
            ),
            requests,
            range(begin, self._attempts.n),
            self._add_messages(head, messages) if is_kept else None,
            n_characters,
        )

    def _add_messages(self, head: EpisodeEnded, messages: Sequence[TurnMessage]) -> range:
        begin = self._transcripts.n
        for each in messages:
            self._transcripts.add(self._manifest, head, each)
        return range(begin, self._transcripts.n)

    def rows_of(
        self,
        group: Sequence[Ended],
        said: Sequence[Column],
        read: Callable[[Position], EpisodeEnded | None],
    ) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return the rows of these cases for `results`, `attempts` and `transcripts`."""
        return (
            self._result_rows(group, said),
            self._attempts.take(
                [at for one in group for own in one.episodes for at in own.attempts]
            ),
            self._message_rows(group, read),
        )

    def add_without_episode(self, grade: Grade, *, had_episode: bool) -> int:
        """Keep a substitute for a graded episode, and return its row.

        If the case had no episode, for example because a mark skipped it, its times are zero. Both
        timestamps then come from its grade, and the fields that name its lane are empty. If it had
        an episode whose record can no longer be read, all these values are null.
        """
        spent = Spent(started_at_us=grade.at_us, ended_at_us=grade.at_us)
        place = placed(self._manifest, grade)
        return self._episodes.add(UNREADABLE if had_episode else spent, grade, UNKNOWN, place)

    def plan(self, cases: Sequence[Case]) -> None:
        """Set the planned cases. Rows refer to them by number, from 0."""
        # Make several parts, since one text column can hold at most 2 GiB.
        starts = range(0, max(1, len(cases)), CASES_PER_GROUP)
        self._cases = [self._of_plan(cases[at : at + CASES_PER_GROUP]) for at in starts]

    def _of_plan(self, cases: Sequence[Case]) -> pa.Table:
        columns = [one for one in results_columns(self.params, ()) if one.record in {Case, None}]
        values = [*map(case_values, cases)]
        arrays = [
            arrow_array(one, (fit(own.get(one.name), one.kind) for own in values))
            if one in self.params
            else field_of(one, cases)
            for one in columns
        ]
        return pa.table(arrays, arrow_schema(columns, simulated=self._manifest.simulated))

    def spent(self, ended: Iterable[Ended]) -> pa.Table:
        """The kept columns of graded episodes, for the cases that have a result."""
        return self._episodes.take([one.row for one in ended if one.grade is not None])

    def _result_rows(self, group: Sequence[Ended], said: Sequence[Column]) -> pa.Table:
        own = [one for one in group if one.grade is not None]
        grades = [one.grade for one in own if one.grade is not None]
        values = [*map(grade_values, grades)]
        # In a resumed run, another worker may have graded the case. Show the worker that sent the
        # requests.
        rows = by_key(divmod(one.number, CASES_PER_GROUP) for one in own)
        parts = [self._cases[at].take(pa.array(its, pa.int64())) for at, its in rows.items()]
        known = pa.concat_tables(parts or [self._cases[0].slice(0, 0)]), self.spent(own)
        found = {name: table[name] for table in known for name in table.column_names}
        columns = results_columns(self.params, said)
        for one in columns:
            if one.record is Manifest:
                found[one.name] = arrow_array(one, [getattr(self._manifest, one.field)] * len(own))
            elif one in said:
                found[one.name] = arrow_array(one, [each.get(one.name) for each in values])
            elif one.name not in found:
                found[one.name] = field_of(one, grades)
        arrays = [found[one.name] for one in columns]
        return pa.table(arrays, arrow_schema(columns, simulated=self._manifest.simulated))

    def _message_rows(
        self, group: Sequence[Ended], read: Callable[[Position], EpisodeEnded | None]
    ) -> pa.Table:
        n_kept = self._transcripts.convert()
        places: list[int] = []
        for case in group:
            if case.graded is None:
                continue
            messages = case.graded.messages
            if messages is None:
                episode = read(case.graded.position)
                messages = range(0)
                if episode is not None:
                    messages = self._add_messages(episode, self._messages(episode))
            places.extend(messages)
        rows = self._transcripts.take(places)
        self._transcripts.forget(n_kept)
        return rows


class TableFiles:
    """The tables `results`, `attempts` and `transcripts`, first written to temporary files.

    Args:
        run_dir: The directory for the tables.
        manifest: The manifest of the run.
        params: The columns from `parameter_columns`.
        said: The columns from `grade_columns`.
    """

    def __init__(
        self, run_dir: Path, manifest: Manifest, params: Sequence[Column], said: Sequence[Column]
    ) -> None:
        self._said = said
        # If a file cannot be opened, the next compaction removes the temporary files of the other
        # tables.
        self._tables = [
            _open_table(run_dir, manifest, "results", results_columns(params, said)),
            _open_table(run_dir, manifest, "attempts", ATTEMPTS_COLUMNS),
            _open_table(run_dir, manifest, "transcripts", TRANSCRIPTS_COLUMNS),
        ]

    def write(
        self,
        rows: TableSet,
        cases: Sequence[Ended],
        read: Callable[[Position], EpisodeEnded | None],
        written: Callable[[int], None],
    ) -> None:
        """Write the rows of some cases.

        Args:
            rows: The set that contains the rows.
            cases: The cases, in the order in which their rows are written.
            read: Returns an episode from the journal, or None if it can no longer be read.
            written: Called before each row group, with the number of cases written so far.
        """
        n_written = 0
        for group in _groups(cases):
            written(n_written)
            found = rows.rows_of(group, self._said, read)
            for table, own in zip(self._tables, found, strict=True):
                table.write(own)
            n_written += len(group)

    def publish(self) -> list[Path]:
        """Read back all tables, publish them together, and return their paths.

        Raises:
            ResultsError: A table does not contain the written rows. Then no table is published.
        """
        for table in self._tables:
            table.finish()
        for table in self._tables:
            table.publish()
        return [table.path for table in self._tables]

    def discard(self) -> None:
        """Remove all temporary files; does nothing after `publish`."""
        for table in self._tables:
            table.discard()


def _groups(cases: Iterable[Ended]) -> Iterator[list[Ended]]:
    """Yield the cases in each row group."""
    group: list[Ended] = []
    n_results = n_characters = 0
    for case in cases:
        group.append(case)
        n_results += case.grade is not None
        n_characters += case.graded.n_characters if case.graded is not None else 0
        if n_results >= CASES_PER_GROUP or n_characters >= TEXT_PER_GROUP:
            yield group
            group, n_results, n_characters = [], 0, 0
    yield group


def write_histories(run_dir: Path, manifest: Manifest) -> list[Path]:
    """Write the tables `limits` and `pauses`, each only if it has rows, and return their paths.

    Raises:
        ResultsError: A table does not contain the written rows.
    """
    changes = read_history(run_dir / LIMITS_FILE, LimitRecord)
    pauses = read_history(run_dir / PAUSES_FILE, PauseRecord)
    limits = Rows(COLUMNS["limits"], *_OF_LIMIT, simulated=manifest.simulated)
    for one in changes:
        limits.add(manifest, one, one.change, placed(manifest, one))
    paused = Rows(COLUMNS["pauses"], *_OF_PAUSE, simulated=manifest.simulated)
    for own in pauses:
        paused.add(manifest, own, own.pause, placed(manifest, own))
    found = {"limits": limits, "pauses": paused}
    return [_write_history(run_dir, manifest, name, rows) for name, rows in found.items() if rows.n]


def _write_history(run_dir: Path, manifest: Manifest, name: str, rows: Rows) -> Path:
    table = _open_table(run_dir, manifest, name, COLUMNS[name])
    try:
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
    """A table in a file `<name>.jsonl`; timestamps are ISO 8601 in UTC."""

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
            ResultsError: The file does not contain as many rows as were written.
        """
        self._file.close()
        decode = msgspec.json.Decoder(dict[str, object]).decode
        with open_file(self._temporary) as file:
            n_found = sum(bool(decode(line)) for line in file)
        if n_found != self._n_rows:
            raise ResultsError(f"{self._temporary} has {n_found} rows, not {self._n_rows}")
