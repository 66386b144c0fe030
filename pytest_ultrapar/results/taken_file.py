"""Cases that a run's suites did not ask themselves, and whose answers stand for theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.results.publish import read_whole, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE_NAME = "taken.json"


class Taken(msgspec.Struct, frozen=True):
    """What one suite took instead of asking it again.

    Attributes:
        suite: The one that took.
        here: Ids of cases of another suite of the same run, each once.
        reused: Ids of cases of the run that --ultrapar-reuse named, each once.
    """

    suite: str
    here: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()


def write_taken(directory: Path, taken: Sequence[Taken]) -> None:
    """Leave it in the run directory, whole or not at all; every worker writes the same.

    A run whose suites took nothing has no such file.

    Raises:
        ResultsError: The directory cannot be written.
    """
    path = directory / FILE_NAME
    if taken:
        write_whole(path, msgspec.json.encode(taken))
        return
    try:
        # A session that never got as far as its first episode may have left one.
        path.unlink(missing_ok=True)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise ResultsError(msg) from error


def read_taken(directory: Path) -> list[Taken]:
    """What the suites of a run took; empty when nothing.

    Raises:
        ResultsError: The file cannot be read, or holds something else.
    """
    return read_whole(
        directory / FILE_NAME, list[Taken], [], "does not hold what the suites of a run took"
    )
