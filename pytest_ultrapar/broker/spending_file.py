"""The spending and reservations against a run's budgets, in a file in the run's directory.

A reservation is written before its lease is granted, and corrected later. So if the run is killed,
the spending in the file is never less than the true spending. A reservation without a correction
belongs to a request that was in flight. Each write is a single call without a sync. If the process
is killed, its writes survive. If the machine crashes, the writes of the last few seconds may be
lost.
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
"""Takes the place of a lane's name if the lane is unknown. The units then count for all lanes."""
_UNKNOWN_RUN = "-"


class Spending(NamedTuple):
    """The content of a spending file.

    Attributes:
        spent: Units by lane. Reservations that were never settled count in full. If lines have been
            lost, all units are listed under `ALL_LANES`.
        run_id: The run that the file belongs to; empty if the file does not name it.
        trouble: One sentence that describes the file's damage; empty if it is intact.
    """

    spent: dict[str, int]
    run_id: str
    trouble: str


class SpendingFile:
    """Appends one line for each reservation in a run and one for each settlement.

    Lines `earlier UNITS LANE` record the spending of earlier sessions. They are followed by
    `reserve ID UNITS LANE` and `settle ID UNITS` for each lease of this session. A line begins with
    its newline character and ends with its CRC-32 and a semicolon. So if a crash or a full disk
    cuts off a line, the missing end shows it. The next entry still begins on a new line.

    The first line, `spending RUN UNITS`, contains the sum of all units that are spent or reserved
    now. It is overwritten when a line is appended. If the other lines add up to less than this sum,
    some of them have been lost, and the sum counts.

    Attributes:
        spent: The units by lane when the file was opened.
    """

    def __init__(
        self, path: Path, earlier: Mapping[str, int] | None = None, run_id: str = ""
    ) -> None:
        """Open or create the file for a session.

        Args:
            path: The file.
            earlier: The units that earlier sessions spent, by lane; None to read them from the
                file.
            run_id: The id of the run, used if the file does not name the run.

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
            # Write the file completely or not at all, because readers trust a file that exists.
            content = b"".join((self._sum(self._total), *lines))
            replace_content(path, content, temporary_for(path))
            # Do not use O_APPEND: Linux would then append the sum, too.
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            raise self._failed(error) from error

    def reserved(self, lease_id: int, lane_id: str, units: int) -> None:
        """Append a reservation.

        Raises:
            ResultsError: The reservation cannot be written, so the lease must not be used.
        """
        self._write(f"reserve {lease_id} {units} {lane_id}", units)
        self._open[lease_id] = units

    def settled(self, lease_id: int, units: int) -> None:
        """Append the settlement of a reservation.

        Raises:
            ResultsError: The settlement cannot be written. The file still contains the
                reservation. Only a request with unbounded answers can have cost more than that.
        """
        self._write(f"settle {lease_id} {units}", units - self._open.get(lease_id, units))
        self._open.pop(lease_id, None)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _write(self, words: str, more: int) -> None:
        """Append a line that changes the sum by `more`, and write the new sum.

        A lower sum is written before the line, a higher one after it. So if the process is killed
        in between, the lines add up to more than the sum. If they added up to less, lines would
        seem to have been lost.
        """
        rest, n_written = _line(words), 1
        total = self._total + more
        try:
            if more < 0:
                os.pwrite(self._fd, self._sum(total), 0)
            # If a write is partial, write the rest: this raises an error that gives the reason.
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
    """The units that a run has spent, by lane; empty if there is no file.

    Raises:
        ResultsError: The file cannot be read, or is too damaged to show the spending.
    """
    found = find_spending(path)
    return {} if found is None else found.spent


def find_spending(path: Path) -> Spending | None:
    """The content of a spending file and a description of any damage; None if there is no file.

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
    # If a reservation was cut off, its lease was never granted. If a settlement was cut off, its
    # reservation counts.
    whole = [line for line in lines if line.endswith(";")]
    said = [_summed(line) if is_current else line[:-1] for line in whole]
    spent, n_not_understood = _added_up([one for one in said if one is not None])
    n_broken = said.count(None) + n_not_understood
    if not is_current and (first or n_broken or not lines):
        raise ResultsError(
            f"{path} is damaged, so the spending of this run is unknown; restore the file, or "
            "send the missing requests in a new run (--ultrapar-replay and "
            "--ultrapar-replay-misses ask)"
        )
    trouble = ""
    if sum(spent.values()) < total:
        spent = {ALL_LANES: total}
        trouble = f"{path} is damaged: the whole spending of the run counts in each of its budgets"
    elif n_broken:
        trouble = f"{path} is damaged: the full amounts of unreadable entries count as spent"
    return Spending(spent, "" if run_id == _UNKNOWN_RUN else run_id, trouble)


def _summed(line: str) -> str | None:
    """The words of a line, or None if its checksum is wrong."""
    words, _, _ = line.rpartition(" ")
    return words if _line(words)[1:] == line.encode() else None


def _added_up(lines: Iterable[str]) -> tuple[dict[str, int], int]:
    """Return the units by lane, and the number of lines that could not be understood."""
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
                # If its reservation is missing, there is nothing to settle.
                if lease_id in open_leases:
                    lane_id, reserved = open_leases.pop(lease_id)
                    spent[lane_id] += int(units) - reserved
            case _:
                n_not_understood += 1
    return spent, n_not_understood
