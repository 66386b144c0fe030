"""The offset between a host's clock and the clock of the server that several hosts share.

The times of a run are on the boot clock of its host, which is unrelated to the clocks of other
hosts. When a host renews its shares of the limits, the server reports its own time. The server read
that time at some moment between the beginning and the end of the call. So the times of two hosts
that called the same server can be compared. The error is at most the duration of the calls.
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
"""A period lasts a thousandth of the time since the first stamp, so a week has 8,000 stamps."""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """The times of one call to the ledger, which manages the shared limits on the server.

    Attributes:
        epoch: The ledger's epoch; within an epoch, the ledger's time never goes backwards.
        lag_ms: How far the ledger's time was behind the server's clock. While the lag stays the
            same, both advance at the same rate. The lag changes if a clock was set, or if the
            ledger did not accept all the time that had passed on the server's clock.
        ledger_ms: The time that the ledger reported in its answer.
        begun_s: When the call began, on the host's boot clock. The times of attempts are also on
            this clock.
        ended_s: When the answer arrived, on the same clock.
    """

    epoch: int
    lag_ms: int
    ledger_ms: int
    begun_s: float
    ended_s: float

    @property
    def clock(self) -> tuple[int, int]:
        """A value that is the same in all stamps of one clock, until that clock is set."""
        return self.epoch, self.lag_ms


class StampFile:
    """Writes stamps: for each period and each clock, the stamp of the fastest call.

    An error while writing does not make the run fail. A later merge then reports that the hosts'
    clocks cannot be compared.

    Args:
        path: The file to append to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._best: Stamp | None = None
        self._first_s: float | None = None
        self._until_s = 0.0

    def add(self, stamp: Stamp) -> None:
        """Add a stamp. Stamps must be added in chronological order."""
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
        """Write the stamp that is still in memory."""
        if self._best is None:
            return
        line = msgspec.json.encode(self._best) + b"\n"
        self._best = None
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "wb", buffering=0) as file:
                file.write(line)


def read_stamps(directory: Path) -> list[Stamp]:
    """The stamps of a run; may be empty. Lines that are not stamps are skipped.

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
