"""The tables of a finished run, read back; with pyarrow, so never in the coordinator."""

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
"""Arrow's."""
Beginning = str | tuple[str, ...] | None


def read_columns(
    run_dir: Path,
    name: str,
    columns: Sequence[str],
    *,
    beginning: Beginning = None,
    of_cases: Collection[str] | None = None,
) -> Table:
    """Columns of one table of a finished run, Parquet or JSON lines.

    Args:
        run_dir: The run directory.
        name: Of the table, one of `tables.TABLES`.
        columns: Their names.
        beginning: All columns whose names begin so are read, too: some runs have none.
        of_cases: Case ids; rows of others are not kept, so that a table may be larger than memory.
            None: all rows. `columns` must have `case_id`.

    Raises:
        ResultsError: There is no such table, it cannot be read, or is not as it was written.
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
        # The last two are what pyarrow says of a column of a type that it cannot read.
        why = str(error) or type(error).__name__
        if isinstance(error, KeyError):
            how = f"python -m pytest_ultrapar.analysis.compact {run_dir}"
            why = f"they have no column {error}, as they are older; {how} makes them anew"
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
    """`read_columns` as rows, by name.

    Raises:
        ResultsError: As there.
    """
    table = read_columns(run_dir, name, columns, beginning=beginning, of_cases=of_cases)
    # Equal texts become one object: 100,000 rows take half as much memory.
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
    """What the summary says of its tables; nothing in earlier versions."""

    digests: dict[str, str] = {}


def _refuse_another(path: Path) -> None:
    """Compare a table with the one that the run's summary was made with.

    Raises:
        ValueError: It is another: nothing tells that of JSON, or of Parquet's last part.
        OSError: It cannot be read.
    """
    try:
        summary = read_file(path.parent / SUMMARY_FILE)
        named = msgspec.json.decode(summary, type=_Named).digests.get(path.name)
    except (FileNotFoundError, *NOT_THAT_JSON):
        # Who needs the summary says so.
        return
    if named is not None and named != digest_of(path):
        raise ValueError(
            f"{path.name} is not the one that {SUMMARY_FILE} names by its digest: it was changed, "
            "or the run was killed as it ended; make both again (--ultrapar-resume)"
        )


def _of_parquet(
    path: Path, columns: Sequence[str], beginning: Beginning, of_cases: Collection[str] | None
) -> Table:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and those who lead a run import this file
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        known = file.schema_arrow
        missing = set(columns) - set(known.names)
        if missing:
            raise KeyError(*missing)
        names = _names(columns, known.names, beginning)
        # Each time that a batch is looked through, all ids of cases are.
        size = max(_ROWS_AT_ONCE, len(of_cases or ()))
        groups = [*range(file.num_row_groups)]
        if of_cases is not None:
            has = partial(pc.is_in, value_set=pa.array(of_cases, pa.string()))
            # Cases that are asked for together often stand together.
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
