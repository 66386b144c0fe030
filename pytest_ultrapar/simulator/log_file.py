"""The server's own log as a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.simulator.log_line import Event, encode_header, encode_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_ultrapar.pool.model import Limit


class LogFile:
    """Collects lines and writes them when told to.

    The server flushes on a timer, in its own process: whatever becomes of its clients, no line of
    theirs is lost.
    """

    def __init__(self, path: Path, limits: Iterable[Limit], now_s: float) -> None:
        """Create the file, or empty it, readable by its owner alone.

        Raises:
            OSError: It cannot be created.
            ResultsError: It cannot be written.
        """
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._lines: list[bytes] = [encode_header(limits, now_s)]
        self.flush()

    def write(
        self, now_s: float, event: Event, request_id: int, names: bytes, status: int | None = None
    ) -> None:
        """Add one event; it reaches the file with the next `flush`."""
        self._lines.append(encode_line(now_s, event, request_id, names, status))

    def flush(self) -> None:
        """Write all lines collected so far.

        Raises:
            ResultsError: The disk is full, or worse. A judge without a record judges nothing.
        """
        if not self._lines:
            return
        rest = memoryview(b"".join(self._lines))
        self._lines.clear()
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            msg = f"cannot write the server's log {self._path}: {error.strerror}"
            raise ResultsError(msg) from None


class NoLog:
    """Stands where no log was asked for."""

    def write(
        self, now_s: float, event: Event, request_id: int, names: bytes, status: int | None = None
    ) -> None:
        """Forget the event."""

    def flush(self) -> None:
        """Nothing to write."""
