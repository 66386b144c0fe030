"""The tables of a finished run, read back as rows; with pyarrow, so never in the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.publish import open_file
from pytest_ultrapar.store.run_lock import read_holder
from pytest_ultrapar.store.tables import COLUMNS, Column, Spent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

_ROWS_AT_ONCE = 4_096


def read_rows(
    run_dir: Path,
    name: str,
    columns: Sequence[str],
    *,
    beginning: str | None = None,
    of_cases: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Columns of one table of a finished run, Parquet or JSON lines, by name.

    Args:
        run_dir: The run directory.
        name: Of the table, one of `tables.TABLES`.
        columns: Their names.
        beginning: All columns whose names begin so are read, too.
        of_cases: Case ids; rows of others are not kept, so that a table may be larger than memory.
            None: all rows. `columns` must have `case_id`.

    Raises:
        ResultsError: There is no such table, it cannot be read, or it is another run's.
    """
    holder = read_holder(run_dir)
    run_id = None if holder is None else holder.run_id
    path, lines = run_dir / f"{name}.parquet", run_dir / f"{name}.jsonl"
    try:
        if path.exists():
            open_file(path).close()
            return _parquet_rows(path, columns, beginning, of_cases, run_id)
        if lines.exists():
            rows = _json_rows(lines, _row_type(name, columns), columns, beginning, run_id)
            return [row for row in rows if of_cases is None or row["case_id"] in of_cases]
    except (OSError, KeyError, ValueError, TypeError, NotImplementedError) as error:
        # The last two are what pyarrow says of a column of a type that it cannot read.
        msg = f"cannot read the {name} of {run_dir}: {str(error) or type(error).__name__}"
        raise ResultsError(msg) from error
    msg = f"{run_dir} has no {name}: the run has not ended (finish it: --ultrapar-resume)"
    raise ResultsError(msg)


def _refuse_another(found: Collection[str], run_id: str | None) -> None:
    others = {*found} - {run_id}
    if run_id is not None and others:
        msg = f"it is of run {others.pop()}, and this is run {run_id}"
        raise ValueError(msg)


def _parquet_rows(
    path: Path,
    columns: Sequence[str],
    beginning: str | None,
    of_cases: Collection[str] | None,
    run_id: str | None,
) -> list[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and those who lead a run import this file
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        known = file.schema_arrow.names
        missing = set(columns) - set(known)
        if missing:
            raise KeyError(*missing)
        names = [*columns, *(one for one in known if beginning and one.startswith(beginning))]
        wanted = None if of_cases is None else pa.array(of_cases, pa.string())
        # Equal texts become one object, and columns are let go batch by batch: 100,000 rows take
        # half as much memory.
        seen: dict[str, str] = {}
        rows: list[dict[str, Any]] = []
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[*names, "run_id"]):
            _refuse_another(pc.unique(batch["run_id"]).to_pylist(), run_id)
            kept = batch
            if wanted is not None:
                kept = batch.filter(pc.is_in(batch["case_id"], value_set=wanted))
            values = [_shared(kept[one].to_pylist(), seen) for one in names]
            rows += [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    return rows


def _shared(values: list[Any], seen: dict[str, str]) -> list[Any]:
    return [seen.setdefault(one, one) if type(one) is str else one for one in values]


def _row_type(name: str, columns: Sequence[str]) -> type[msgspec.Struct]:
    """What these columns of a row must hold: JSON says nothing of it, as Parquet does."""
    known = {one.name: one for one in COLUMNS[name]}
    return msgspec.defstruct(name, [(one, _type_of(known[one])) for one in columns])


def _type_of(column: Column) -> Any:  # noqa: ANN401 - a type, as a struct's field has it
    if column.kind == "timestamp":
        return str | None
    fields = msgspec.structs.fields(column.record) if column.record is not None else ()
    (hint,) = (each.type for each in fields if each.name == column.field)
    # The record of an episode may have been damaged.
    return hint | None if column.record is Spent else hint


def _json_rows(
    path: Path,
    row_type: type[msgspec.Struct],
    columns: Sequence[str],
    beginning: str | None,
    run_id: str | None,
) -> Iterator[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with open_file(path) as file:
        for row in map(decode, file):
            msgspec.convert(row, row_type)
            _refuse_another([row["run_id"]], run_id)
            more = {one: row[one] for one in row if beginning and one.startswith(beginning)}
            yield {one: row[one] for one in columns} | more
