"""Read cases from a data file, one per row, for `pytest.mark.parametrize`."""

from __future__ import annotations

import codecs
import csv
import sys
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pytest

from pytest_ultrapar.report.text import counted, one_line, shorten
from pytest_ultrapar.system.files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
_FAULTS = (OSError, ValueError, TypeError, RecursionError, csv.Error, msgspec.MsgspecError)
"""The errors that reading a data file can raise, including those from pyarrow."""
_MOST_CHARS = 1_000
_MARK_FAULTS = (AttributeError, pytest.fail.Exception, pytest.PytestUnknownMarkWarning)


def cases(
    path: str | Path,
    *columns: str,
    id: str | None = None,  # noqa: A002 - as `pytest.param` has it
    marks: str | None = None,
    meta: Sequence[str] = (),
) -> list[Any]:
    """The rows of a data file, as a list of `pytest.param`.

        @pytest.mark.parametrize("word, answer", cases("words.jsonl", "word", "answer"))

    Args:
        path: A `.jsonl`, `.ndjson`, `.csv` or `.parquet` file. A relative path starts at the folder
            of the calling file.
        columns: The columns whose values each case gets. If you name no column, each case gets the
            whole row as a dict.
        id: The column with the case's id. Without it, the id is a short hash of the case's values,
            so the position of the row does not matter.
        marks: The column with the case's marks: a list of names, or a string of names separated by
            commas or spaces.
        meta: Columns with further facts about a case, stored as `meta.<name>` in `results`.

    Raises:
        pytest.Collector.CollectError: The file is missing, damaged or empty, or two rows would
            become the same case. The message is one sentence that names the file and line; pytest
            shows no traceback.
    """
    caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - there is no other way to it
    place, found, lines = _Place(Path(caller).parent / path), [], dict[str, int]()
    said = [meta] if isinstance(meta, str) else meta
    wanted = [*columns, *filter(None, (id, marks)), *said] if columns else []
    mark = cache(partial(getattr, pytest.mark))
    try:
        for row in _rows(place, wanted):
            values = tuple(row[name] for name in columns) if columns else (row,)
            given = row[id] if id else blake2b(_encode(values), digest_size=6).hexdigest()
            if given is None or not (name := str(given)):
                place.refuse(f"the id (column {id!r}) is empty")
            if (line := lines.setdefault(name, place.line)) != place.line:
                how = f"both lines have the id {name!r}" if id else "give both an id (id=COLUMN)"
                place.refuse(f"this is the same case as line {line}; {how}")
            marked = [*map(mark, _names(row[marks]))] if marks else []
            if said:
                marked.append(pytest.mark.ultrapar(meta={name: row[name] for name in said}))
            found.append(pytest.param(*values, id=name, marks=marked))
    except KeyError as error:
        place.refuse(f"there is no column {error}; the columns are {', '.join(row)}")
    except (*_FAULTS, *_MARK_FAULTS) as error:
        place.refuse(str(getattr(error, "strerror", None) or error))
    if not found:
        place.refuse("there are no rows")
    return found


def _names(said: object) -> Sequence[str]:
    names = said.replace(",", " ").split() if isinstance(said, str) else said or []
    if not isinstance(names, list) or not all(str(name).isidentifier() for name in names):
        raise ValueError(f"marks must be names such as 'slow' (got {said!r})")
    return names


class _Place:
    """The file, and the line of the row read last; in a Parquet file, the number of that row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0

    def refuse(self, what: str) -> NoReturn:
        msg = f"{self.path}{f':{self.line}' if self.line else ''}: {what}"
        raise pytest.Collector.CollectError(one_line(shorten(msg, _MOST_CHARS))) from None


def _rows(place: _Place, wanted: list[str]) -> Iterator[dict[str, Any]]:
    """Yield all rows. From a Parquet file, read only the wanted columns, if any are named."""
    suffix = place.path.suffix.lower()
    with open_file(place.path) as file:
        if suffix == ".parquet":
            from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - heavy

            table = ParquetFile(file)
            names = table.schema_arrow.names
            if len({*names}) < len(names):
                place.refuse(f"two columns have the same name; the columns are {', '.join(names)}")
            has_all = {*wanted} <= {*names}
            for batch in table.iter_batches(columns=wanted if wanted and has_all else None):
                for row in batch.to_pylist():
                    place.line += 1
                    yield row
        elif suffix == ".csv":
            texts = (line.decode() for line in _lines(place, file))
            reader = csv.reader(texts, strict=True)
            header = next(reader, [])
            n = len({*header})
            for fields in filter(None, reader):
                if len(fields) != n:
                    found, named = counted(len(fields), "field"), counted(n, "column")
                    place.refuse(f"has {found}, but the first line names {named}")
                yield dict(zip(header, fields, strict=True))
        elif suffix in {".jsonl", ".ndjson"}:
            decode = msgspec.json.Decoder(dict[str, Any]).decode
            yield from (decode(line) for line in _lines(place, file) if not line.isspace())
        else:
            place.refuse("cases() reads only .jsonl, .ndjson, .csv and .parquet")


def _lines(place: _Place, file: Iterator[bytes]) -> Iterator[bytes]:
    for place.line, line in enumerate(file, 1):
        yield line.removeprefix(codecs.BOM_UTF8)
