"""What became of limits and lanes over the time of a run, a line each, in files of the run."""

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
    """Appends to a file what has happened; a crash costs a second of it.

    There is no file where nothing happens, as in most runs. One that cannot be written (any more)
    is let go: a history is worth no run.
    """

    def __init__(self, path: Path, record: Callable[[int, Any], msgspec.Struct]) -> None:
        """Make or continue the file with the first change.

        Args:
            path: The file.
            record: Makes a line of the time that people read, microseconds since the epoch, and of
                what happened then: a struct with `t_s`, monotonic seconds of the host.
        """
        self._path: Path | None = path
        self._record = record
        self._fd: int | None = None
        self._epoch_s = wall_s() - boot_s()

    def append(self, changes: Iterable[LimitChange | LanePause]) -> None:
        """Add what has happened, the oldest first."""
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
            sys.stderr.write(f"ultrapar: {name} ends here: {error.strerror}\n")
            self.close()

    def close(self) -> None:
        """Let the file go. Idempotent."""
        self._path = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def read_history(path: Path, record: type[R]) -> list[R]:
    """All whole lines of a file; none if there is no such file."""
    try:
        lines = read_file(path).splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        # Torn by a crash: what happened then is not worth a table.
        with suppress(*NOT_THAT_JSON):
            records.append(msgspec.json.decode(line, type=record))
    return records
