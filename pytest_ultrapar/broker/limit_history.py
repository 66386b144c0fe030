"""The history of a run's limits and lanes, in files in the run's directory."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pytest_ultrapar.system.clock import boot_s, wall_s
from pytest_ultrapar.system.files import NOT_THAT_JSON, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pytest_ultrapar.broker.adaptive.observation import LimitChange
    from pytest_ultrapar.broker.health import LanePause


WRITE_EVERY_S = 1.0


R = TypeVar("R", bound=msgspec.Struct)


class HistoryFile:
    """Appends changes to a file, one per line.

    After a crash, the changes of the last second are missing. The first change creates the file.
    Most runs have no changes, and therefore no file. If the file cannot be written, the history
    ends but the run continues.
    """

    def __init__(self, path: Path, record: Callable[[int, Any], msgspec.Struct]) -> None:
        """Set the path. The first change opens the file, and creates it if it does not exist.

        Args:
            path: The file.
            record: Makes the content of a line from two arguments: the wall-clock time in
                microseconds since the epoch, and the change. The change is a struct whose `t_s` is
                a time on the machine's monotonic clock, in seconds.
        """
        self._path: Path | None = path
        self._record = record
        self._fd: int | None = None
        self._epoch_s = wall_s() - boot_s()

    def append(self, changes: Iterable[LimitChange | LanePause]) -> None:
        """Append changes, which must be in chronological order."""
        left = b"".join(
            msgspec.json.encode(self._record(round((self._epoch_s + each.t_s) * 1e6), each)) + b"\n"
            for each in changes
        )
        try:
            if left and self._fd is None and self._path is not None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            while left and self._fd is not None:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            name = "" if self._path is None else self._path.name
            sys.stderr.write(
                f"ultrapar: cannot write {name}, so this file ends here: {error.strerror}\n"
            )
            self.close()

    def close(self) -> None:
        """Close the file. Idempotent. Later changes are dropped."""
        self._path = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def read_history(path: Path, record: type[R]) -> list[R]:
    """Read the records in the complete lines of a file. If there is no file, return no records."""
    try:
        lines = read_file(path).splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        # A crash may cut off a line: drop this line rather than the whole table.
        with suppress(*NOT_THAT_JSON):
            records.append(msgspec.json.decode(line, type=record))
    return records
