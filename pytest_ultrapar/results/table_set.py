"""The three tables of a run, written side by side and put in place together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.results.jsonlines import JsonLinesTable
from pytest_ultrapar.results.schema import (
    ATTEMPTS_COLUMNS,
    TRANSCRIPTS_COLUMNS,
    Column,
    results_columns,
)
from pytest_ultrapar.results.tables import (
    RunWords,
    attempt_rows,
    result_row,
    transcript_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_ultrapar.records import Case, EpisodeEnded, Grade
    from pytest_ultrapar.results.manifest import StorageFormat
    from pytest_ultrapar.results.table_writer import TableWriter

CASES_PER_GROUP = 2_000
TEXT_PER_GROUP = 16 * 2**20
"""Characters of conversation; whichever comes first ends a row group, to keep memory bounded."""


class TableSet:
    """Takes cases and episodes one by one.

    Args:
        run: What all rows have in common.
        params: The suite's parameters as columns.
        scores: The scores as columns.
        open_table: Makes the writer of a table by its name and columns.
    """

    def __init__(
        self,
        run: RunWords,
        params: Sequence[Column],
        scores: Sequence[Column],
        open_table: Callable[[str, Sequence[Column]], TableWriter],
    ) -> None:
        self._run = run
        self._params = params
        self._scores = scores
        self.n_requests = self.n_maybe_billed = 0
        self._n_pending = 0
        self._text_pending = 0
        self._tables: list[TableWriter] = []
        try:
            for name, columns in (
                ("results", results_columns(params, scores)),
                ("attempts", ATTEMPTS_COLUMNS),
                ("transcripts", TRANSCRIPTS_COLUMNS),
            ):
                self._tables.append(open_table(name, columns))
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
            self._run,
            case,
            grade,
            episode,
            had_episode=had_episode,
            params=self._params,
            scores=self._scores,
        )
        self._results.add(row)
        if episode is not None:
            for message in transcript_rows(self._run, episode):
                self._transcripts.add(message)
            self._text_pending += sum(len(message.content) for message in episode.messages)
        self._n_pending += 1
        if self._n_pending >= CASES_PER_GROUP or self._text_pending >= TEXT_PER_GROUP:
            self._flush()

    def add_requests(self, episode: EpisodeEnded) -> None:
        """All requests of one episode, graded or not."""
        for row in attempt_rows(self._run, episode):
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


def opener(
    directory: Path, storage_format: StorageFormat, *, simulated: bool
) -> Callable[[str, Sequence[Column]], TableWriter]:
    """How `TableSet` makes its writers in the given format."""
    if storage_format == "json":
        return lambda name, columns: JsonLinesTable(directory, name, columns)
    # JSON lines must not pay for pyarrow: 120 ms and 50 MB.
    from pytest_ultrapar.results.parquet import ParquetTable, arrow_schema  # noqa: PLC0415

    return lambda name, columns: ParquetTable(
        directory, name, arrow_schema(columns, simulated=simulated)
    )
