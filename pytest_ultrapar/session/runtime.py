"""What a process needs in order to run cases: the run's files, settings and secrets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.broker.debug_log import DebugLog
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.store.journal import JournalReader, JournalWriter, Position
from pytest_ultrapar.store.parts import PartWriter
from pytest_ultrapar.store.recovered import RecoveredIndex
from pytest_ultrapar.store.redact import Redactor
from pytest_ultrapar.system.files import read_whole, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.store.replayed import ReplayedEpisodes


_WRONG = "does not hold what a run leaves there"
ASSIGNMENT_FILE = "assignment.json"


@dataclass(eq=False, repr=False, kw_only=True)
class Runtime:
    """One process's view of a run; made when its items are known, closed when the session ends.

    Attributes:
        config: pytest's.
        options: Settled settings.
        directory: The run's directory.
        worker: `gw0`, ...; without xdist `main`.
        redactor: Knows the run's secrets.
        replayed: Reads the run that is replayed, if any.
    """

    config: pytest.Config
    options: Options
    directory: Path
    worker: str
    redactor: Redactor

    def __post_init__(self) -> None:
        """Open this process's own journal segment.

        Raises:
            ResultsError: The segment or the debug log cannot be made.
        """
        directory, worker, redactor = self.directory, self.worker, self.redactor
        self._debug_log: DebugLog | None = None
        if self.options.debug_log.includes(worker):
            self._debug_log = DebugLog(directory, worker, redactor.text)
        self.journal = JournalWriter(directory / "journal", worker, redactor.bytes)
        self.parts = PartWriter(directory, redactor.bytes)
        self.recovered = RecoveredIndex(directory)
        self._reader = JournalReader(directory / "journal")
        self.replayed: ReplayedEpisodes | None = None
        self._groups: Mapping[str, str] | None = None
        self._closed = False

    def sync(self) -> None:
        """Wait until all that was kept so far is on the disk itself.

        Raises:
            ResultsError: Some of it may be lost.
        """
        # What records name before the records.
        self.parts.sync()
        self.journal.sync()

    def read_episode(self, position: Position) -> EpisodeEnded:
        """A finished episode, from the journal.

        Raises:
            ResultsError: Something else stands there.
        """
        record = self._reader.read(position)
        if not isinstance(record, EpisodeEnded):
            raise ResultsError(f"the journal has no finished episode in {position}")
        return record

    def group_of(self, case_id: str) -> str:
        """The assignment's group of a case, empty for none; made before any case is dispatched."""
        if self._groups is None:
            assignment = read_assignment(self.directory)
            self._groups = {
                member: group.name for group in assignment.groups for member in group.cases
            }
        return self._groups.get(case_id, "")

    def close(self) -> None:
        """Sync and close all files. Idempotent.

        Raises:
            ResultsError: The journal may have lost what was appended last; all files are closed.
        """
        if self._closed:
            return
        self._closed = True
        if self._debug_log is not None:
            self._debug_log.close()
        self._reader.close()
        if self.replayed is not None:
            self.replayed.close()
        self.recovered.close()
        try:
            self.parts.sync()
        finally:
            self.journal.close()


def write_assignment(directory: Path, assignment: Assignment) -> None:
    """Leave the assignment where workers find it. Called by the controller before it dispatches.

    Raises:
        ResultsError: It cannot be written.
    """
    write_whole(directory / ASSIGNMENT_FILE, msgspec.json.encode(assignment))


def read_assignment(directory: Path) -> Assignment:
    """The run's assignment; an empty one while there is none.

    Raises:
        ResultsError: It cannot be read, or is no assignment.
    """
    return read_whole(directory / ASSIGNMENT_FILE, Assignment, Assignment(), _WRONG)
