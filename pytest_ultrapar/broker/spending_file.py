"""What a run has spent and reserved of its budgets, in a file of its directory.

Each reservation is in it before its lease is granted, and each correction follows. So whoever reads
the file after a kill finds at least what was spent: reservations that nothing corrected were in
flight. A write is one call without a sync, so it outlives every process, and not the machine: what
was written in its last seconds may go with it.
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
"""In the place of a lane: units whose lane is lost, so they count for each."""
_UNKNOWN_RUN = "-"


class Spending(NamedTuple):
    """What a file of spending says.

    Attributes:
        spent: Units by lane, or those of all under `ALL_LANES` where lines are lost: reservations
            that nothing settled count in full.
        run_id: Of the run that it belongs to; empty where it does not say.
        trouble: What is wrong with it, a sentence; empty where nothing is.
    """

    spent: dict[str, int]
    run_id: str
    trouble: str


class SpendingFile:
    """The reservations of a run and what became of them, a line each, appended.

    `earlier UNITS LANE` is what sessions before had spent; then come of each lease of this session
    `reserve ID UNITS LANE` and `settle ID UNITS`. Each line ends with its CRC-32, and has its end
    of line in front and a semicolon behind: so one that a crash or a full disk cut is known by what
    it lacks, and the next one does not go on with it.

    The first line, `spending RUN UNITS`, is written over with each other one: what is spent and
    reserved now. Where the lines come to less, some are lost, and the sum counts in their place.

    Attributes:
        spent: By lane, when it was opened.
    """

    def __init__(
        self, path: Path, earlier: Mapping[str, int] | None = None, run_id: str = ""
    ) -> None:
        """Open it for a session.

        Args:
            path: Where it is, or will be.
            earlier: What sessions before had spent, by lane; None: what the file says.
            run_id: Of the run, where the file does not say.

        Raises:
            ResultsError: It cannot be read or written.
        """
        self._path = path
        found = look_at_spending(path) or Spending({}, "", "")
        self._run_id = found.run_id or run_id or _UNKNOWN_RUN
        self.spent = dict(found.spent if earlier is None else earlier)
        self._total = sum(self.spent.values())
        self._open: dict[int, int] = {}
        lines = [_line(f"earlier {units} {lane}") for lane, units in self.spent.items()]
        try:
            # Whole or not at all: who finds the file takes its word for what was spent.
            content = b"".join((self._sum(self._total), *lines))
            replace_content(path, content, temporary_for(path))
            # Not to append: then Linux would append the sum, too.
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            raise self._failed(error) from error

    def reserved(self, lease_id: int, lane_id: str, units: int) -> None:
        """Append a reservation.

        Raises:
            ResultsError: It cannot be written; nothing may be sent on it.
        """
        self._write(f"reserve {lease_id} {units} {lane_id}", units)
        self._open[lease_id] = units

    def settled(self, lease_id: int, units: int) -> None:
        """Append what became of one.

        Raises:
            ResultsError: It cannot be written; the file has the reservation, which is no less.
        """
        self._write(f"settle {lease_id} {units}", units - self._open.get(lease_id, units))
        self._open.pop(lease_id, None)

    def close(self) -> None:
        """Write no more."""
        os.close(self._fd)

    def _write(self, words: str, more: int) -> None:
        """Append a line that changes the sum by `more`, and write the sum.

        Killed between both, the lines come to more than the sum: with less none seems to be lost.
        """
        rest, n_written = _line(words), 1
        total = self._total + more
        try:
            if more < 0:
                os.pwrite(self._fd, self._sum(total), 0)
            # What is left of a short write is tried again, for the reason.
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
        return ResultsError(f"{self._path}: what is spent cannot be kept: {error.strerror}")


def _line(words: str) -> bytes:
    return f"\n{words} {crc32(words.encode()):08x};".encode()


def read_spending(path: Path) -> dict[str, int]:
    """Units by lane that a run has spent; nothing without a file.

    Raises:
        ResultsError: It cannot be read, or does not tell.
    """
    found = look_at_spending(path)
    return {} if found is None else found.spent


def look_at_spending(path: Path) -> Spending | None:
    """What a file of spending says, and what is wrong with it; None where there is none.

    Raises:
        ResultsError: It cannot be read, or does not tell what was spent.
    """
    try:
        text = read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultsError(f"{path}: what was spent cannot be read: {error.strerror}") from error
    first, *lines = text.split("\n")
    match (_summed(first) or "").split(" "):
        case ["spending", run_id, units] if units.isdecimal():
            total, is_current = int(units), True
        case _:
            # Files of earlier versions begin with an empty line, and have no checksums.
            run_id, total, is_current = _UNKNOWN_RUN, 0, False
    # What was cut when it was written was never granted, or leaves a reservation as it is.
    whole = [line for line in lines if line.endswith(";")]
    said = [_summed(line) if is_current else line[:-1] for line in whole]
    spent, n_not_understood = _added_up([one for one in said if one is not None])
    n_broken = said.count(None) + n_not_understood
    if not is_current and (first or n_broken or not lines):
        raise ResultsError(
            f"{path} is damaged: what the run has spent of its budget cannot be known; put back "
            "the right file, or ask what is missing in a new run that replays this one "
            "(--ultrapar-replay)"
        )
    trouble = ""
    if n_broken or sum(spent.values()) < total:
        trouble = f"{path} is damaged: what cannot be read there counts in full"
    if sum(spent.values()) < total:
        spent = {ALL_LANES: total}
        trouble += ", for each budget of the run"
    return Spending(spent, "" if run_id == _UNKNOWN_RUN else run_id, trouble)


def _summed(line: str) -> str | None:
    """The words of a line whose checksum is right, else None."""
    words, _, _ = line.rpartition(" ")
    return words if _line(words)[1:] == line.encode() else None


def _added_up(lines: Iterable[str]) -> tuple[dict[str, int], int]:
    """Units by lane, and how many lines say nothing of any."""
    spent: dict[str, int] = {}
    open_leases: dict[str, tuple[str, int]] = {}
    n_not_understood = 0
    for line in lines:
        match line.split(" "):
            case ["begin"]:  # of a session, in files of earlier versions
                open_leases = {}
            case ["earlier", units, lane_id] if units.isdecimal():
                spent[lane_id] = spent.get(lane_id, 0) + int(units)
            case ["reserve", lease_id, units, lane_id] if units.isdecimal():
                spent[lane_id] = spent.get(lane_id, 0) + int(units)
                open_leases[lease_id] = lane_id, int(units)
            case ["settle", lease_id, units] if units.isdecimal():
                # One whose reservation is gone has nothing to change.
                if lease_id in open_leases:
                    lane_id, reserved = open_leases.pop(lease_id)
                    spent[lane_id] += int(units) - reserved
            case _:
                n_not_understood += 1
    return spent, n_not_understood
