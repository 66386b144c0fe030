"""The data that a replay needs about the earlier run: its cases and their episodes' positions.

The coordinator looks this up once and writes it to the run's directory. Every process that runs
cases reads it there. So all processes use the same run, even if the option named it as `latest`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pytest_ultrapar.errors import ResultsError, refuse
from pytest_ultrapar.records import Case, EpisodeEnded, by_key
from pytest_ultrapar.store.cases_file import changed_parameter, read_cases
from pytest_ultrapar.store.journal import Damage, JournalReader, Position
from pytest_ultrapar.store.journal_history import read_history
from pytest_ultrapar.store.manifest import Manifest, read_manifest
from pytest_ultrapar.store.run_directory import JOURNAL_NAME
from pytest_ultrapar.system.files import read_whole, write_whole

FILE_NAME = "replayed.json"


class Origin(msgspec.Struct, frozen=True):
    """A case of the earlier run.

    Attributes:
        case: The case as it was planned then, with its seed.
        position: The position of its episode in that run's journal; None if it has no episode.
    """

    case: Case
    position: Position | None = None


class ReplayedRun(msgspec.Struct, frozen=True):
    """The earlier run, whose answers are replayed.

    Attributes:
        directory: The run's directory.
        run_id: Its id.
        origins: Its cases.
    """

    directory: str
    run_id: str
    origins: list[Origin]


def prepare_replay(run: Path, directory: Path, option: str) -> tuple[Manifest, list[Damage]]:
    """Look up the data of an earlier run, and write it to the directory of the replay.

    Args:
        run: The earlier run, locked with `run_directory.held`.
        directory: The directory of the replay.
        option: The option that named the run, for messages.

    Returns:
        The earlier run's manifest, and the damage in its journal.

    Raises:
        ConfigError: The run did not store answers.
        ResultsError: The run cannot be read, or the directory cannot be written.
    """
    manifest = read_manifest(run)
    if manifest.record != "full":
        refuse(
            f"{option}: {run} does not contain whole requests and answers (recorded with "
            f"--ultrapar-record {manifest.record}, not full), so it cannot be replayed"
        )
    history = read_history(run / JOURNAL_NAME)
    origins = []
    for case in read_cases(run):
        found = history.cases.get(case.case_id)
        entry = None if found is None else found.kept_episode()
        origins.append(Origin(case, None if entry is None else entry.position))
    kept = ReplayedRun(str(run.resolve()), manifest.run_id, origins)
    write_whole(directory / FILE_NAME, msgspec.json.encode(kept))
    return manifest, history.damage


def read_replayed(directory: Path) -> ReplayedRun | None:
    """The data that `prepare_replay` wrote to a run's directory; None if the run is not a replay.

    Raises:
        ResultsError: The data cannot be read.
    """
    return read_whole(
        directory / FILE_NAME, ReplayedRun, None, "does not contain the data of a replay"
    )


class Origins:
    """Finds the case of the earlier run from which a case takes its answers and its seed.

    Args:
        origins: The cases of that run.
    """

    def __init__(self, origins: list[Origin]) -> None:
        self._by_id = {one.case.case_id: one for one in origins}
        self._alike = by_key((_what_stays(one.case), one) for one in origins)

    def find(self, case: Case) -> Origin | str:
        """Return the case with the same id; otherwise the only one that differs just in its file.

        Returns:
            The case, or the reason for a miss as a sentence without a full stop.
        """
        if (own := self._by_id.get(case.case_id)) is not None:
            return own
        alike = self._alike.get(_what_stays(case), [])
        alike = [one for one in alike if changed_parameter(one.case, case) is None]
        if len(alike) == 1:
            return alike[0]
        if alike:
            return (
                f"{len(alike)} cases in the run have the same function, parameters, model and "
                "repetition as this case"
            )
        return "the run does not contain this case"


def _what_stays(case: Case) -> bytes:
    """A case's identity apart from its file: its function, parameters, model and repetition."""
    function = case.test.partition("::")[2]
    params = {name: [type(value).__name__, value] for name, value in case.params.items()}
    return msgspec.json.encode([function, params, case.model, case.repeat], order="sorted")


class ReplayedEpisodes:
    """Reads the episodes of the earlier run; used by one thread.

    Args:
        run: The earlier run.
    """

    def __init__(self, run: ReplayedRun) -> None:
        self.directory = Path(run.directory)
        self._reader = JournalReader(self.directory / JOURNAL_NAME)

    def read(self, origin: Origin) -> EpisodeEnded | str:
        """The episode of a case, or the reason for a miss as a sentence without a full stop."""
        if origin.position is None:
            return "the run has no finished episode of this case"
        try:
            record = self._reader.read(origin.position)
        except ResultsError as error:
            return str(error)
        return record if isinstance(record, EpisodeEnded) else "the stored episode is unreadable"

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
