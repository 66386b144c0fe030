"""The aggregate as `aggregate.parquet` and `aggregate.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType

import pyarrow as pa
import pyarrow.parquet as pq

from bench_suites.workflow.aggregate import CaseResult, Row, aggregate
from pytest_ultrapar.store.tables import SIMULATED_KEY
from pytest_ultrapar.system.files import write_whole

_TYPES = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    # A missing rate or mean.
    NoneType: pa.float64(),
    datetime: pa.timestamp("us", tz="UTC"),
}
_EXAMPLE = CaseResult("", "", 0.0, "", "", "solved", 0.0, datetime.now(UTC))
SCHEMA = pa.schema(
    [(name, _TYPES[type(value)]) for name, value in aggregate([_EXAMPLE])[0].items()]
)
"""The original's 51 columns in their order, and `infra`."""


def write_aggregate(directory: Path, rows: Sequence[Row], *, simulated: bool) -> tuple[str, ...]:
    """Write each file atomically, and return their names.

    Raises:
        ResultsError: A file cannot be written. An earlier file with its name is unchanged.
    """
    contents = {
        "aggregate.parquet": _parquet(rows, simulated=simulated),
        "aggregate.csv": _csv(rows),
    }
    for name, content in contents.items():
        write_whole(directory / name, content)
    return tuple(contents)


def _parquet(rows: Sequence[Row], *, simulated: bool) -> bytes:
    schema = SCHEMA.with_metadata({SIMULATED_KEY: "true" if simulated else "false"})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
    return bytes(sink.getvalue())


def _csv(rows: Iterable[Row]) -> bytes:
    """A header and one line per row. A missing value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SCHEMA.names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        dates = {name: at.isoformat() for name, at in row.items() if isinstance(at, datetime)}
        writer.writerow(row | dates)
    return text.getvalue().encode()
