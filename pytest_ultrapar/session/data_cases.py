"""Cases from a data file: its rows, as `pytest.mark.parametrize` takes them."""

from __future__ import annotations

import codecs
import csv
import sys
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pytest

from pytest_ultrapar.system.files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Row = dict[str, Any]

_ID_BYTES = 6
"""Two of a hundred thousand cases have the same id with a chance of 2 in 100,000."""
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
_BROKEN = (OSError, ValueError, TypeError, csv.Error, msgspec.MsgspecError)
"""What readers raise; pyarrow's are among them."""


def cases(
    path: str | Path,
    *columns: str,
    id: str | None = None,  # noqa: A002 - as `pytest.param` has it
    marks: str | None = None,
) -> list[Any]:
    """The rows of a data file, as a list of `pytest.param`.

        @pytest.mark.parametrize("word, answer", cases("words.jsonl", "word", "answer"))

    Args:
        path: A `.jsonl`, `.ndjson`, `.csv` or `.parquet` file; relative to the file that calls.
        columns: Those whose values a case gets. Without any it gets the row, a dict.
        id: The column that names a case. Without it a short hash of what the case gets does, which
            is the same wherever the row stands.
        marks: The column with the marks of a case: names in a list, or in a text with commas or
            blanks between them.

    Raises:
        pytest.Collector.CollectError: The file is missing, broken or empty, or two rows are one
            case: one sentence with file and line, which pytest shows without a traceback.
    """
    caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - there is no other way to it
    file = _DataFile(Path(caller).parent / path)
    found = []
    lines: dict[str, int] = {}
    for row in file.rows([*columns, *filter(None, (id, marks))] if columns else []):
        try:
            values = tuple(row[name] for name in columns) if columns else (row,)
            name = _hash(values) if id is None else str(row[id])
            marked = () if marks is None else _marks(row[marks])
        except KeyError as error:
            file.refuse(f"there is no column {error}; there is {', '.join(row)}")
        except (ValueError, pytest.fail.Exception, pytest.PytestUnknownMarkWarning) as error:
            file.refuse(str(error))
        if not name:
            file.refuse(f"the id (column {id!r}) is empty")
        if (line := lines.setdefault(name, file.line)) != file.line:
            if id is not None:
                file.refuse(f"the id {name!r} is that of line {line}, too")
            file.refuse(f"the case is that of line {line}, too; leave one out, or give ids (id=)")
        found.append(pytest.param(*values, id=name, marks=marked))
    if not found:
        file.line = 0
        file.refuse("there are no rows")
    return found


def _hash(values: tuple[object, ...]) -> str:
    return blake2b(_encode(values), digest_size=_ID_BYTES).hexdigest()


def _marks(said: object) -> Sequence[pytest.MarkDecorator]:
    names = said.replace(",", " ").split() if isinstance(said, str) else said or []
    if not isinstance(names, list) or not all(str(name).isidentifier() for name in names):
        msg = f"marks must be names such as 'slow' (got {said!r})"
        raise ValueError(msg)
    return [_mark(name) for name in names]


@cache
def _mark(name: str) -> pytest.MarkDecorator:
    mark: pytest.MarkDecorator = getattr(pytest.mark, name)
    return mark


class _DataFile:
    """A file while its rows are read.

    Attributes:
        line: Where the row stands that was read last, from 1; in Parquet, which row it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0

    def refuse(self, what: str) -> NoReturn:
        """Say what is wrong, and where."""
        where = f"{self.path}:{self.line}" if self.line else self.path
        msg = f"{where}: {what}"
        raise pytest.Collector.CollectError(msg) from None

    def rows(self, wanted: Sequence[str]) -> Iterator[Row]:
        """All rows; of a Parquet file only the columns that are wanted, if there are any."""
        by_suffix = {".jsonl": self._json, ".ndjson": self._json, ".csv": self._csv}
        suffix = self.path.suffix.lower()
        try:
            if suffix == ".parquet":
                yield from self._parquet(wanted)
            elif suffix in by_suffix:
                yield from by_suffix[suffix]()
            else:
                self.refuse(f"cases() reads {', '.join(by_suffix)} and .parquet")
        except _BROKEN as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else error
            self.refuse(str(said))

    def _lines(self) -> Iterator[bytes]:
        with open_file(self.path) as file:
            for self.line, line in enumerate(file, 1):
                yield line.removeprefix(codecs.BOM_UTF8) if self.line == 1 else line

    def _json(self) -> Iterator[Row]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        for line in self._lines():
            if not line.isspace():
                yield decode(line)

    def _csv(self) -> Iterator[Row]:
        reader = csv.reader((line.decode() for line in self._lines()), strict=True)
        header = next(reader, [])
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            self.refuse(f"column {twice!r} stands there twice")
        for fields in reader:
            if fields and len(fields) != len(header):
                self.refuse(f"{len(fields)} fields, and the first line has {len(header)}")
            if fields:
                yield dict(zip(header, fields, strict=True))

    def _parquet(self, wanted: Sequence[str]) -> Iterator[Row]:
        import pyarrow.parquet  # noqa: PLC0415 - heavy

        with open_file(self.path) as opened, pyarrow.parquet.ParquetFile(opened) as file:
            known = file.schema_arrow.names
            picked = list(wanted) if wanted and set(wanted) <= {*known} else None
            for batch in file.iter_batches(columns=picked):
                for row in batch.to_pylist():
                    self.line += 1
                    yield row
