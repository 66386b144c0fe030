"""Tables as JSON lines: the same rows and names as in Parquet, for tools that read nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.results.publish import publish, temporary_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_ultrapar.results.schema import Column
    from pytest_ultrapar.results.tables import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JsonLinesTable:
    """A `TableWriter` for `<name>.jsonl`; timestamps are ISO 8601 in UTC."""

    def __init__(self, directory: Path, name: str, columns: Sequence[Column]) -> None:
        self.path = directory / f"{name}.jsonl"
        self.n_rows = 0
        self._names = [column.name for column in columns]
        self._timestamps = [i for i, each in enumerate(columns) if each.kind == "timestamp"]
        self._temporary = temporary_for(self.path)
        self._temporary.touch(mode=0o600)
        self._file = self._temporary.open("wb")

    def add(self, row: Row) -> None:
        """Write one row as one line."""
        values = dict(zip(self._names, row, strict=True))
        for i in self._timestamps:
            if row[i] is not None:
                values[self._names[i]] = _EPOCH + timedelta(microseconds=_whole(row[i]))
        self._file.write(msgspec.json.encode(values) + b"\n")
        self.n_rows += 1

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def finish(self) -> None:
        """Close the temporary file and read every line of it back.

        Raises:
            ResultsError: It does not hold as many rows as were written.
        """
        self._file.close()
        decode = msgspec.json.Decoder(dict[str, object]).decode
        with self._temporary.open("rb") as file:
            n_found = sum(decode(line).keys() == set(self._names) for line in file)
        if n_found != self.n_rows:
            msg = f"{self._temporary} holds {n_found} rows of {self.n_rows} written"
            raise ResultsError(msg)

    def publish(self) -> None:
        """Let the finished file take the place of an earlier one."""
        publish(self._temporary, self.path)

    def discard(self) -> None:
        """Remove the temporary file; harmless after `publish`."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
