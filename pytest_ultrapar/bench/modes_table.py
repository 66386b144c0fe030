"""One table over the modes of a bench: the rows of each run's `results`, whatever its format."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.results.parquet import arrow_schema, verify
from pytest_ultrapar.results.publish import publish, temporary_for
from pytest_ultrapar.results.schema import (
    SIMULATED_KEY,
    Column,
    parameter_columns,
    results_columns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_ultrapar.bench.mode_run import ModeRun

FILE_NAME = "results.parquet"

_SCORE = "score."


def write_modes_table(directory: Path, runs: Sequence[ModeRun]) -> None:
    """Write the rows of all runs, in their order, as one Parquet file; whole or not at all.

    The columns are those of `results`; a score that a run has not is null in its rows.

    Args:
        directory: Where the file is to stand.
        runs: At least one, of the same cases.

    Raises:
        ResultsError: A run's table cannot be read, the tables do not fit together, or the file
            cannot be written.
    """
    simulated = "true" if any(run.manifest.simulated for run in runs) else "false"
    tables = list(map(_read, runs))
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        where = " and ".join(str(run.directory) for run in runs)
        msg = f"cannot put the results of {where} together: {error}"
        raise ResultsError(msg) from error
    table = table.replace_schema_metadata({SIMULATED_KEY: simulated})
    path = directory / FILE_NAME
    temporary = temporary_for(path)
    try:
        temporary.touch(mode=0o600)
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        verify(temporary, table.schema, table.num_rows)
        publish(temporary, path)
    except (OSError, pa.ArrowException) as error:
        msg = f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
        raise ResultsError(msg) from error
    finally:
        temporary.unlink(missing_ok=True)


def _read(run: ModeRun) -> pa.Table:
    path, lines = run.directory / FILE_NAME, run.directory / "results.jsonl"
    try:
        if run.manifest.storage_format == "parquet":
            return pq.read_table(path, page_checksum_verification=True)
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        with lines.open("rb") as file:
            rows = list(map(decode, file))
        return _typed(run, rows)
    except (OSError, pa.ArrowException, msgspec.DecodeError, ValueError, TypeError) as error:
        msg = f"cannot read the results of {run.directory}: {error}"
        raise ResultsError(msg) from error
    except KeyError as error:
        msg = f"cannot read the results of {run.directory}: {error} is missing in a row"
        raise ResultsError(msg) from error


def _typed(run: ModeRun, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of JSON with the types that the same table has as Parquet."""
    scores = [name for name in rows[0] if name.startswith(_SCORE)] if rows else []
    columns = results_columns(
        parameter_columns(run.cases.values()),
        [Column(name, "double", nullable=True) for name in scores],
    )
    times = [column.name for column in columns if column.kind == "timestamp"]
    for row in rows:
        for name in times:
            if row[name] is not None:
                row[name] = datetime.fromisoformat(row[name])
    return pa.Table.from_pylist(
        rows, schema=arrow_schema(columns, simulated=run.manifest.simulated)
    )
