"""The spending and reservations of a run's budgets, in a file of the run's directory.

A reservation is in the file before its lease is granted, and its correction follows. After a kill
the file therefore shows at least the true spending: reservations without a correction were in
flight. A write is one call without a sync. It survives the end of every process, but a crash of the
machine may lose the writes of its last seconds.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.system.files import read_file, replace_content, temporary_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

ALL_LANES = "*"
"""Stands for a lane: units whose lane is lost, so they count for every lane."""
_UNKNOWN_RUN = "-"


class Spending(NamedTuple):
    """The content of a spending file.

    Attributes:
        spent: Units by lane. Reservations that were never settled count in full. If lines are lost,
            all units are under `ALL_LANES`.
        run_id: The run that the file belongs to; empty if the file does not name it.
        trouble: The damage of the file, a sentence; empty if it is intact.
    """

    spent: dict[str, int]
    run_id: str
    trouble: str


class SpendingFile:
    """Appends a line for each reservation of a run and for each settlement.

    `earlier UNITS LANE` is the spending of earlier sessions. Each lease of this session then has
    `reserve ID UNITS LANE` and `settle ID UNITS`. Each line ends with its CRC-32 and a semicolon,
    and begins with the newline. A line that a crash or a full disk cut off therefore lacks its end,
    and the next line does not continue it.

    The first line, `spending RUN UNITS`, holds the units spent and reserved now. Each new line
    overwrites it. If the lines add up to less, some are lost, and the first line's sum counts.

    Attributes:
        spent: The units by lane when the file was opened.
    """

    def __init__(
        self, path: Path, earlier: Mapping[str, int] | None = None, run_id: str = ""
    ) -> None:
        """Open or create the file for a session.

        Args:
            path: The file.
            earlier: The units that earlier sessions spent, by lane; None: read them from the file.
            run_id: The id of the run, used if the file does not name it.

        Raises:
            ResultsError: The file cannot be read or written.
        """
        self._path = path
        found = find_spending(path) or Spending({}, "", "")
        self._run_id = found.run_id or run_id or _UNKNOWN_RUN
        self.spent = dict(found.spent if earlier is None else earlier)
        self._total = sum(self.spent.values())
        self._open: dict[int, int] = {}
        lines = [_line(f"earlier {units} {lane}") for lane, units in self.spent.items()]
        try:
            # Written whole or not at all: readers trust a file that exists.
            content = b"".join((self._sum(self._total), *lines))
            replace_content(path, content, temporary_for(path))
            # Not O_APPEND: Linux would then append the sum, too.
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            raise self._failed(error) from error

    def reserved(self, lease_id: int, lane_id: str, units: int) -> None:
        """Append a reservation.

        Raises:
            ResultsError: It cannot be written; the lease must not be used.
        """
        self._write(f"reserve {lease_id} {units} {lane_id}", units)
        self._open[lease_id] = units

    def settled(self, lease_id: int, units: int) -> None:
        """Append the settlement of a reservation.

        Raises:
            ResultsError: It cannot be written; the reservation, which is at least the cost, stays.
        """
        self._write(f"settle {lease_id} {units}", units - self._open.get(lease_id, units))
        self._open.pop(lease_id, None)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _write(self, words: str, more: int) -> None:
        """Append a line that changes the sum by `more`, and write the sum.

        After a kill between the two writes the lines add up to more than the sum. If they added up
        to less, lines would seem to be lost.
        """
        rest, n_written = _line(words), 1
        total = self._total + more
        try:
            if more < 0:
                os.pwrite(self._fd, self._sum(total), 0)
            # Retry the rest of a short write: the retry raises the error that says why.
            while rest and n_written:
                n_written = os.write(self._fd, rest)
                rest = rest[n_written:]
            if more > 0 and not rest:
                os.pwrite(self._fd, self._sum(total), 0)
        except OSError as error:
            raise self._failed(error) from error
        if rest:
            raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._total = total

    def _sum(self, total: int) -> bytes:
        return _line(f"spending {self._run_id} {total:020}")[1:]

    def _failed(self, error: OSError) -> ResultsError:
        return ResultsError(f"{self._path}: cannot record spending: {error.strerror}")


def _line(words: str) -> bytes:
    return f"\n{words} {crc32(words.encode()):08x};".encode()


def read_spending(path: Path) -> dict[str, int]:
    """The units that a run has spent, by lane; empty without a file.

    Raises:
        ResultsError: The file cannot be read, or is too damaged to show the spending.
    """
    found = find_spending(path)
    return {} if found is None else found.spent


def find_spending(path: Path) -> Spending | None:
    """The content of a spending file and its damage; None without a file.

    Raises:
        ResultsError: The file cannot be read, or is too damaged to show the spending.
    """
    try:
        text = read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultsError(f"{path}: cannot read spending: {error.strerror}") from error
    first, *lines = text.split("\n")
    match (_summed(first) or "").split(" "):
        case ["spending", run_id, units] if units.isdecimal():
            total, is_current = int(units), True
        case _:
            # Files of earlier versions begin with an empty line and have no checksums.
            run_id, total, is_current = _UNKNOWN_RUN, 0, False
    # A line that was cut off was never granted, or leaves its reservation as it is.
    whole = [line for line in lines if line.endswith(";")]
    said = [_summed(line) if is_current else line[:-1] for line in whole]
    spent, n_not_understood = _added_up([one for one in said if one is not None])
    n_broken = said.count(None) + n_not_understood
    if not is_current and (first or n_broken or not lines):
        raise ResultsError(
            f"{path} is damaged, so the spending of this run is unknown; restore the file, or "
            "send the missing requests in a new run that replays this one (--ultrapar-replay)"
        )
    trouble = ""
    if n_broken or sum(spent.values()) < total:
        trouble = f"{path} is damaged: unreadable entries count in full"
    if sum(spent.values()) < total:
        spent = {ALL_LANES: total}
        trouble += ", against each budget of the run"
    return Spending(spent, "" if run_id == _UNKNOWN_RUN else run_id, trouble)


def _summed(line: str) -> str | None:
    """The words of a line, or None if its checksum is wrong."""
    words, _, _ = line.rpartition(" ")
    return words if _line(words)[1:] == line.encode() else None


def _added_up(lines: Iterable[str]) -> tuple[dict[str, int], int]:
    """The units by lane, and the number of lines that are not understood."""
    spent: dict[str, int] = {}
    open_leases: dict[str, tuple[str, int]] = {}
    n_not_understood = 0
    for line in lines:
        match line.split(" "):
            case ["begin"]:  # the start of a session, in files of earlier versions
                open_leases = {}
            case ["earlier", units, lane_id] if units.isdecimal():
                spent[lane_id] = spent.get(lane_id, 0) + int(units)
            case ["reserve", lease_id, units, lane_id] if units.isdecimal():
                spent[lane_id] = spent.get(lane_id, 0) + int(units)
                open_leases[lease_id] = lane_id, int(units)
            case ["settle", lease_id, units] if units.isdecimal():
                # Without its reservation there is nothing to settle.
                if lease_id in open_leases:
                    lane_id, reserved = open_leases.pop(lease_id)
                    spent[lane_id] += int(units) - reserved
            case _:
                n_not_understood += 1
    return spent, n_not_understood
