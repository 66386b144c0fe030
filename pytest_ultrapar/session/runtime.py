"""The files, settings and secrets that a process needs to run cases."""

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
from pytest_ultrapar.store.journal_history import RecoveredIndex
from pytest_ultrapar.store.redact import Redactor
from pytest_ultrapar.store.string_parts import PartWriter
from pytest_ultrapar.system.files import read_whole, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.store.replayed import ReplayedEpisodes


_WRONG = "does not contain an assignment"
ASSIGNMENT_FILE = "assignment.json"


@dataclass(eq=False, repr=False, kw_only=True)
class Runtime:
    """A run in one of its processes, from the end of collection to the end of the session.

    Attributes:
        config: pytest's configuration.
        options: The settings in effect.
        directory: The run's directory.
        worker: The name of this process: `gw0` and so on, or `main` without xdist.
        redactor: Masks the run's secrets.
        replayed: Reads the replayed run, if any.
    """

    config: pytest.Config
    options: Options
    directory: Path
    worker: str
    redactor: Redactor

    def __post_init__(self) -> None:
        """Open this process's journal segment, and the debug log if it is requested.

        Raises:
            ResultsError: The segment or the debug log cannot be created.
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
        """Wait until everything that has been stored so far is on disk.

        Raises:
            ResultsError: Some of it may be lost.
        """
        # Sync the parts first, because records refer to them.
        self.parts.sync()
        self.journal.sync()

    def read_episode(self, position: Position) -> EpisodeEnded:
        """Read a finished episode from the journal.

        Raises:
            ResultsError: There is no finished episode at the position.
        """
        record = self._reader.read(position)
        if not isinstance(record, EpisodeEnded):
            raise ResultsError(f"the journal has no finished episode at {position}")
        return record

    def group_of(self, case_id: str) -> str:
        """The group of a case in the assignment, or an empty string.

        The groups are known before cases are dispatched.
        """
        if self._groups is None:
            assignment = read_assignment(self.directory)
            self._groups = {
                member: group.name for group in assignment.groups for member in group.cases
            }
        return self._groups.get(case_id, "")

    def close(self) -> None:
        """Sync and close all files. Idempotent.

        Raises:
            ResultsError: The journal may have lost its last records. All files are closed anyway.
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
    """Write the assignment for the workers. Called by the controller before it dispatches cases.

    Raises:
        ResultsError: The assignment cannot be written.
    """
    write_whole(directory / ASSIGNMENT_FILE, msgspec.json.encode(assignment))


def read_assignment(directory: Path) -> Assignment:
    """The run's assignment; an empty one if the file does not exist.

    Raises:
        ResultsError: The file cannot be read or does not contain an assignment.
    """
    return read_whole(directory / ASSIGNMENT_FILE, Assignment, Assignment(), _WRONG)
