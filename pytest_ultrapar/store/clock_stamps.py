"""How a host's clock stands to that of the server that it shares limits by, noted at each renewal.

The times of a run are on the boot clock of its host, which says nothing of another one's. The
server told its own time somewhere between the begin and the end of a call, so two hosts that asked
it have a clock in common, with an error that the calls themselves tell.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.system.files import cannot, read_file

if TYPE_CHECKING:
    from pathlib import Path

CLOCKS_NAME = "clocks.jsonl"
_FINEST_S = 1.0
_SHARE = 1000
"""Of each thousandth of the time so far one stamp is kept, so a week leaves 8,000 of them."""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """One call.

    Attributes:
        epoch: The ledger's, within which its time never goes back.
        lag_ms: By how much the ledger's time was behind the server's clock. Where it stays the
            same, the ledger's time goes as that clock does; it changes when a clock was set, or
            when the ledger did not believe how much time went by.
        ledger_ms: The ledger's time when it answered.
        begun_s: When the call began, by the host's boot clock, as times of attempts are.
        ended_s: When its answer was there, likewise.
    """

    epoch: int
    lag_ms: int
    ledger_ms: int
    begun_s: float
    ended_s: float

    @property
    def clock(self) -> tuple[int, int]:
        """Names a clock that was not set: the ledger's times of stamps with this name are its."""
        return self.epoch, self.lag_ms


class StampFile:
    """Notes stamps: of each stretch of time, and of each clock, that of the quickest call.

    No run fails because it cannot be written; a merge says then that clocks cannot be compared.

    Args:
        path: Is appended to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._best: Stamp | None = None
        self._first_s: float | None = None
        self._until_s = 0.0

    def add(self, stamp: Stamp) -> None:
        """Take a stamp; stamps come in the order of time."""
        if self._first_s is None:
            self._first_s = stamp.begun_s
        best = self._best
        if best is not None and (stamp.begun_s >= self._until_s or stamp.clock != best.clock):
            self.flush()
        if self._best is None:
            so_far_s = stamp.begun_s - self._first_s
            self._until_s = stamp.begun_s + max(_FINEST_S, so_far_s / _SHARE)
            self._best = stamp
        elif stamp.ended_s - stamp.begun_s < self._best.ended_s - self._best.begun_s:
            self._best = stamp

    def flush(self) -> None:
        """Write what is kept."""
        if self._best is None:
            return
        line = msgspec.json.encode(self._best) + b"\n"
        self._best = None
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "wb", buffering=0) as file:
                file.write(line)


def read_stamps(directory: Path) -> list[Stamp]:
    """The stamps of a run; empty where it has none. What is no stamp is left out.

    Raises:
        ResultsError: The file cannot be read.
    """
    path = directory / CLOCKS_NAME
    with cannot(f"read {path}"):
        lines = read_file(path).splitlines() if path.exists() else []
    found = []
    decode = msgspec.json.Decoder(Stamp).decode
    for line in lines:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            found.append(decode(line))
    return found
