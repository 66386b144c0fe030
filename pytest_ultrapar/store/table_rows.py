"""Read the tables of a finished run. This needs pyarrow, so the coordinator never does so."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.store.run_directory import SUMMARY_FILE
from pytest_ultrapar.system.files import NOT_THAT_JSON, digest_of, open_file, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

_ROWS_AT_ONCE = 4_096
Table = Any
"""An Arrow table."""
Beginning = str | tuple[str, ...] | None


def read_columns(
    run_dir: Path,
    name: str,
    columns: Sequence[str],
    *,
    beginning: Beginning = None,
    of_cases: Collection[str] | None = None,
) -> Table:
    """Read columns of one table of a finished run, from Parquet or JSON lines.

    Args:
        run_dir: The run directory.
        name: The name of the table, one of `tables.TABLES`.
        columns: Names of the columns.
        beginning: Also read all columns whose names begin with this text; there may be none.
        of_cases: Case ids. Only the rows of these cases are kept, so a table may be larger than
            memory; `columns` must then contain `case_id`. None keeps all rows.

    Raises:
        ResultsError: The table does not exist, cannot be read, or was changed.
    """
    path, lines = run_dir / f"{name}.parquet", run_dir / f"{name}.jsonl"
    try:
        if path.exists():
            _refuse_another(path)
            return _of_parquet(path, columns, beginning, of_cases)
        if lines.exists():
            _refuse_another(lines)
            return _of_json(lines, columns, beginning, of_cases)
    except (OSError, KeyError, ValueError, TypeError, NotImplementedError) as error:
        # pyarrow raises the last two for a column whose type it cannot read.
        why = str(error) or type(error).__name__
        if isinstance(error, KeyError):
            how = f"python -m pytest_ultrapar.analysis.compact {run_dir}"
            why = f"they are too old and have no column {error}; {how} rebuilds them"
        raise ResultsError(f"cannot read the {name} of {run_dir}: {why}") from error
    raise ResultsError(
        f"{run_dir} has no {name}: the run has not ended (finish it: --ultrapar-resume)"
    )


def read_rows(
    run_dir: Path,
    name: str,
    columns: Sequence[str],
    *,
    beginning: Beginning = None,
    of_cases: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """The rows of `read_columns`, by column name.

    Raises:
        ResultsError: As for `read_columns`.
    """
    table = read_columns(run_dir, name, columns, beginning=beginning, of_cases=of_cases)
    # Equal texts share one object: 100,000 rows take half as much memory.
    seen: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for batch in table.to_batches(_ROWS_AT_ONCE):
        values = [
            [seen.setdefault(one, one) if type(one) is str else one for one in column.to_pylist()]
            for column in batch.columns
        ]
        rows += [
            dict(zip(table.column_names, row, strict=True)) for row in zip(*values, strict=True)
        ]
    return rows


class _Named(msgspec.Struct):
    """The part of the summary with the digests of the tables. Earlier versions wrote no digests."""

    digests: dict[str, str] = {}


def _refuse_another(path: Path) -> None:
    """Compare a table with its digest in the run's summary.

    Raises:
        ValueError: The table does not match its digest. No other check detects a change in a
            JSON file or in the last part of a Parquet file.
        OSError: The table cannot be read.
    """
    try:
        summary = read_file(path.parent / SUMMARY_FILE)
        named = msgspec.json.decode(summary, type=_Named).digests.get(path.name)
    except (FileNotFoundError, *NOT_THAT_JSON):
        # Code that needs the summary reports the error.
        return
    if named is not None and named != digest_of(path):
        raise ValueError(
            f"{path.name} does not match the digest in {SUMMARY_FILE}: it was changed, or the run "
            "was killed as it ended; rebuild both files (--ultrapar-resume)"
        )


def _of_parquet(
    path: Path, columns: Sequence[str], beginning: Beginning, of_cases: Collection[str] | None
) -> Table:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and processes that lead a run import this file
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        known = file.schema_arrow
        missing = set(columns) - set(known.names)
        if missing:
            raise KeyError(*missing)
        names = _names(columns, known.names, beginning)
        # Each filtered batch is compared with all ids, so use a few large batches for many ids.
        size = max(_ROWS_AT_ONCE, len(of_cases or ()))
        groups = [*range(file.num_row_groups)]
        if of_cases is not None:
            has = partial(pc.is_in, value_set=pa.array(of_cases, pa.string()))
            # Cases that are read together are often next to each other.
            ids = (file.read_row_group(at, ["case_id"])["case_id"] for at in groups)
            groups = [at for at, own in enumerate(ids) if pc.any(has(own)).as_py()]
        batches = file.iter_batches(size, row_groups=groups, columns=names)
        if of_cases is not None:
            batches = (one.filter(has(one["case_id"])) for one in batches)
        schema = pa.schema([known.field(one) for one in names])
        return pa.Table.from_batches([one.select(names) for one in batches], schema)


def _names(columns: Sequence[str], known: Sequence[str], beginning: Beginning) -> list[str]:
    return [*columns, *(one for one in known if beginning and one.startswith(beginning))]


def _of_json(
    path: Path, columns: Sequence[str], beginning: Beginning, of_cases: Collection[str] | None
) -> Table:
    import pyarrow as pa  # noqa: PLC0415 - as above

    with open_file(path) as file:
        names, values = None, []
        for row in map(msgspec.json.Decoder(dict[str, Any]).decode, file):
            names = names or _names(columns, list(row), beginning)
            if of_cases is None or row["case_id"] in of_cases:
                values.append([row[one] for one in names])
    found = {}
    for at, one in enumerate(names or columns):
        column = pa.array([row[at] for row in values])
        found[one] = column.cast(pa.string()) if pa.types.is_null(column.type) else column
    return pa.table(found)
