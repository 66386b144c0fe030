"""Make tables for a run in progress or a killed run, whose own tables are missing or outdated.

The new tables are made from a temporary copy of the run's files, and are removed together with the
copy.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE
from pytest_ultrapar.broker.health import PAUSES_FILE
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.store.cases_file import PLAN_NAMES
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.journal_history import FILE_NAME as RECOVERED_NAME
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST_NAME
from pytest_ultrapar.store.run_directory import JOURNAL_NAME, in_use
from pytest_ultrapar.store.run_lock import LOCK_NAME
from pytest_ultrapar.store.string_parts import PARTS_NAME
from pytest_ultrapar.system.files import cannot, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOWEST = 19
_SMALL_FILES = (LOCK_NAME, MANIFEST_NAME, *PLAN_NAMES, RECOVERED_NAME, LIMITS_FILE, PAUSES_FILE)


class Readable(NamedTuple):
    """A directory with the tables of a run.

    Attributes:
        directory: The run's own directory, or a copy of it.
        state: A sentence to show before the figures of an unfinished run; empty for a finished run.
        goes_on: Whether the run is still in progress.
    """

    directory: Path
    state: str
    goes_on: bool = False


@contextmanager
def readable(run_dir: Path) -> Iterator[Readable]:
    """Provide the run's directory or, if the run is unfinished, a copy with tables of its results.

    This is a context manager. The run's directory is not changed, and a run in progress is not
    delayed.

    Raises:
        ConfigError: The run has not planned its cases yet, or cannot be read.
        ResultsError: The copy cannot be written.
    """
    goes_on = in_use(run_dir)
    if _is_over(run_dir):
        yield Readable(run_dir, "")
        return
    if not (run_dir / MANIFEST_NAME).exists():
        how = "has not planned its cases yet" if goes_on else "ended before its first case"
        refuse(f"{run_dir} {how}, so there is nothing to show")
    with tempfile.TemporaryDirectory(prefix="ultrapar-") as folder:
        copy = Path(folder) / run_dir.name
        now = datetime.now(UTC)
        with cannot(f"copy {run_dir} to {folder}"):
            _copy(run_dir, copy)
            if goes_on and _is_over(run_dir):
                # The run ended while its files were copied.
                yield Readable(run_dir, "")
                return
            # Import this only when it is needed, because it takes 0.3 s.
            from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415

            statistics = compact(copy).statistics
        n_done = f"{statistics.n_answered:,} of {statistics.n_planned:,} cases"
        yield Readable(
            copy,
            f"This run is in progress: {n_done} done at {now:%Y-%m-%d %H:%M:%S} UTC"
            if goes_on
            else f"This run was interrupted: {n_done} done; finish it with --ultrapar-resume",
            goes_on,
        )


def _is_over(run_dir: Path) -> bool:
    return not in_use(run_dir) and read_summary(run_dir) is not None


def at_low_priority(work: Callable[[], None]) -> None:
    """Do the work at the lowest CPU priority, because a run in progress needs the CPU more."""
    with ThreadPoolExecutor(1, initializer=_yield_to_others) as one:
        one.submit(work).result()


def _yield_to_others() -> None:
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid even this
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)


def _copy(run_dir: Path, copy: Path) -> None:
    """Copy the files from which tables are made; of journal segments, only the complete records."""
    (copy / JOURNAL_NAME).mkdir(parents=True)
    # `recovered` describes an earlier state of the journal, so copy it first.
    for name in _SMALL_FILES:
        if (run_dir / name).exists():
            shutil.copyfile(run_dir / name, copy / name)
    for segment in segments(run_dir / JOURNAL_NAME):
        whole, feed, _ = read_file(segment).rpartition(b"\n")
        (copy / JOURNAL_NAME / segment.name).write_bytes(whole + feed)
    if (run_dir / PARTS_NAME).is_dir():
        (copy / PARTS_NAME).symlink_to((run_dir / PARTS_NAME).absolute())
