"""Tables as Parquet files with page checksums, read back before they count.

Parquet's own readers do not verify checksums unless they are told to, and take a flipped byte for a
value. So the pages have them, and are read back once with them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.store.tables import SIMULATED_KEY, Column, Kind
from pytest_ultrapar.system.files import publish, temporary_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import msgspec


_TYPES: dict[Kind, pa.DataType] = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_array(column: Column, values: Iterable[object]) -> pa.Array:
    """The values of a column."""
    return pa.array(list(values), _TYPES[column.kind])


def field_of(column: Column, records: Iterable[object]) -> pa.Array:
    """A column that is a field of these records."""
    return arrow_array(column, map(attrgetter(column.field), records))


def arrow_schema(columns: Sequence[Column], *, simulated: bool) -> pa.Schema:
    """The Arrow schema of a table, with the mark of simulated answers in its metadata."""
    fields = [pa.field(each.name, _TYPES[each.kind], each.nullable) for each in columns]
    return pa.schema(fields, {SIMULATED_KEY: "true" if simulated else "false"})


_ROWS_PER_BATCH = 500
"""Converting so many of the widest table takes 3 ms, for which nobody else gets the interpreter."""


class Rows:
    """Rows of a table in the order in which they come, kept as columns; given out in any order.

    Args:
        columns: Of the table.
        kinds: A row is made of one record of each of these types, in this order.
        simulated: Whether its answers are.

    Attributes:
        schema: Of the table.
        n: Rows so far.
    """

    def __init__(
        self, columns: Sequence[Column], *kinds: type[msgspec.Struct], simulated: bool
    ) -> None:
        self.schema = arrow_schema(columns, simulated=simulated)
        self.n = 0
        self._columns = [(column, kinds.index(column.record)) for column in columns]
        self._pending: list[tuple[object, ...]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, *records: object) -> int:
        """Take what one row is made of, and return which row that is."""
        self._pending.append(records)
        self.n += 1
        if len(self._pending) >= _ROWS_PER_BATCH:
            self.convert()
        return self.n - 1

    def take(self, places: Sequence[int]) -> pa.Table:
        """The rows at these places, in the order given."""
        self.convert()
        # Put together once: else each time that some are taken.
        whole = pa.Table.from_batches(self._batches, self.schema).combine_chunks()
        self._batches = whole.to_batches()
        return whole.take(pa.array(places, pa.int64()))

    def convert(self) -> int:
        """Make columns of the rows that are none yet; returns how many there are."""
        if self._pending:
            given = list(zip(*self._pending, strict=True))
            arrays = [field_of(column, given[at]) for column, at in self._columns]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
            self._pending.clear()
        return self.n

    def forget(self, n: int) -> None:
        """Let go of all rows that came since `convert` returned `n`."""
        kept = pa.Table.from_batches(self._batches, self.schema).slice(0, n)
        self._batches = kept.to_batches()
        self._pending.clear()
        self.n = n


class Table:
    """A table on its way to disk: rows go to a temporary file, which `publish` puts in place.

    Attributes:
        path: Where the table will stand.
    """

    _file: Any
    """What writes into the temporary file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._n_rows = 0
        self._temporary = temporary_for(path)
        self._temporary.touch(mode=0o600)

    def write(self, rows: pa.Table) -> None:
        """Write rows."""
        raise NotImplementedError

    def finish(self) -> None:
        """Close the temporary file and read it back.

        Raises:
            ResultsError: It does not hold what was written.
        """
        raise NotImplementedError

    def publish(self) -> None:
        """Let the finished file take the place of an earlier one; whole or not at all."""
        publish(self._temporary, self.path)

    def discard(self) -> None:
        """Remove the temporary file; harmless after `publish`."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


class ParquetTable(Table):
    """A table as `<name>.parquet`; each `write` makes one row group."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema) -> None:
        super().__init__(directory / f"{name}.parquet")
        self._schema = schema
        # zstd finds what repeats by itself: with dictionaries writing takes twice as long.
        self._file = pq.ParquetWriter(
            self._temporary,
            schema,
            compression="zstd",
            use_dictionary=False,
            write_page_checksum=True,
        )

    def write(self, rows: pa.Table) -> None:
        """Write rows."""
        if rows.num_rows:
            self._file.write_table(rows, row_group_size=rows.num_rows)
            self._n_rows += rows.num_rows

    def finish(self) -> None:
        """Close the temporary file and read every page of it back.

        Raises:
            ResultsError: Rows, schema or a page's checksum are not those written.
        """
        self._file.close()
        verify(self._temporary, self._schema, self._n_rows)


def verify(path: Path, schema: pa.Schema, n_rows: int) -> None:
    """Read a Parquet file whole, a row group in memory at a time.

    Raises:
        ResultsError: Its rows or schema differ, or a page does not match its checksum. Without the
            check, a flipped byte of a page is read back as if nothing had happened.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            found = file.schema_arrow
            n_found = sum(
                file.read_row_group(i, use_threads=False).num_rows
                for i in range(file.num_row_groups)
            )
    except (OSError, pa.ArrowException) as error:
        raise ResultsError(f"{path} cannot be read back: {error}") from error
    if n_found != n_rows:
        raise ResultsError(f"{path} holds {n_found} rows of {n_rows} written")
    if not found.equals(schema, check_metadata=True):
        raise ResultsError(f"{path} does not have the schema it was written with")
