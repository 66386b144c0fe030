"""Write tables as Parquet files with page checksums, and read them back before use.

Parquet readers verify checksums only on request; without this, they accept a flipped byte as a
value. So the pages are written with checksums, and each file is read back once to verify them.
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
    """Convert values to the type of a column."""
    return pa.array(list(values), _TYPES[column.kind])


def field_of(column: Column, records: Iterable[object]) -> pa.Array:
    """Make a column from the field that each of these records has for it."""
    return arrow_array(column, map(attrgetter(column.field), records))


def arrow_schema(columns: Sequence[Column], *, simulated: bool) -> pa.Schema:
    """The Arrow schema of a table; its metadata says whether answers are simulated."""
    fields = [pa.field(each.name, _TYPES[each.kind], each.nullable) for each in columns]
    return pa.schema(fields, {SIMULATED_KEY: "true" if simulated else "false"})


_ROWS_PER_BATCH = 500
"""How many rows are converted at once. For the widest table this takes 3 ms, and other threads are
blocked meanwhile."""


class Rows:
    """Rows of a table, stored as columns in order of arrival; `take` returns them in any order.

    Args:
        columns: The columns of the table.
        kinds: The types of records. A row consists of one record of each type, in this order.
        simulated: Whether the answers are simulated.

    Attributes:
        schema: The schema of the table.
        n: The number of rows so far.
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
        """Add the records of one row, and return the row's number."""
        self._pending.append(records)
        self.n += 1
        if len(self._pending) >= _ROWS_PER_BATCH:
            self.convert()
        return self.n - 1

    def take(self, places: Sequence[int]) -> pa.Table:
        """The rows with these numbers, in the given order."""
        self.convert()
        # Combine once, not for each call.
        whole = pa.Table.from_batches(self._batches, self.schema).combine_chunks()
        self._batches = whole.to_batches()
        return whole.take(pa.array(places, pa.int64()))

    def convert(self) -> int:
        """Convert pending rows to columns; return the total number of rows."""
        if self._pending:
            given = list(zip(*self._pending, strict=True))
            arrays = [field_of(column, given[at]) for column, at in self._columns]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
            self._pending.clear()
        return self.n

    def forget(self, n: int) -> None:
        """Drop all rows that were added since `convert` returned `n`."""
        kept = pa.Table.from_batches(self._batches, self.schema).slice(0, n)
        self._batches = kept.to_batches()
        self._pending.clear()
        self.n = n


class Table:
    """A table that is being written to a temporary file; `publish` moves the file to its place.

    Attributes:
        path: The final path of the table.
    """

    _file: Any
    """The writer of the temporary file."""

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
            ResultsError: The file does not contain the written rows.
        """
        raise NotImplementedError

    def publish(self) -> None:
        """Replace the earlier file with the finished one, completely or not at all."""
        publish(self._temporary, self.path)

    def discard(self) -> None:
        """Remove the temporary file; does nothing after `publish`."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


class ParquetTable(Table):
    """A table in a file `<name>.parquet`; each `write` makes one row group."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema) -> None:
        super().__init__(directory / f"{name}.parquet")
        self._schema = schema
        # zstd finds repetitions itself: with dictionaries, writing takes twice as long.
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
        """Close the temporary file and read back every page.

        Raises:
            ResultsError: The number of rows or the schema is not as written, or a page does not
                match its checksum.
        """
        self._file.close()
        verify(self._temporary, self._schema, self._n_rows)


def verify(path: Path, schema: pa.Schema, n_rows: int) -> None:
    """Read a whole Parquet file, one row group in memory at a time.

    Raises:
        ResultsError: The file does not have this schema and number of rows, or a page does not
            match its checksum. Without this check, a flipped byte in a page goes unnoticed.
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
        raise ResultsError(f"{path} has {n_found} rows, but {n_rows} were written")
    if not found.equals(schema, check_metadata=True):
        raise ResultsError(f"{path} does not have the schema it was written with")
