"""Find the runs in a folder, each with its state, its results and its size on disk."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.errors import ConfigError, ResultsError, refuse
from pytest_ultrapar.records import GRADED
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.journal_history import read_history
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST_NAME
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.run_directory import JOURNAL_NAME, in_use
from pytest_ultrapar.store.run_lock import LOCK_NAME, run_id_of
from pytest_ultrapar.system.files import cannot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.store.manifest import Manifest

Verdict = Literal["complete", "interrupted", "running", "damaged"]


class Counts(msgspec.Struct, frozen=True):
    """How many cases of a run are in each state.

    Attributes:
        planned: How many cases are planned.
        final: How many planned cases have a row in `results`.
        graded: How many of the final cases are included in scores.
        solved: How many of the graded cases are solved.
        scored: How many of the graded cases are graded only by scores.
    """

    planned: int
    final: int
    graded: int
    solved: int
    scored: int = 0


class FoundRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a folder, as a line of `ultrapar runs --json` shows it.

    Attributes:
        name: The path of the run's directory, relative to the folder.
        directory: The absolute path of the run's directory.
        run_id: The run's id.
        verdict: `running` if a process is writing to the run, or `damaged` if the run's manifest,
            cases or journal cannot be read. Any other run is `complete` if it has ended and each
            planned case has a row in `results`, and `interrupted` if not.
        started_at: When the run's last session started, according to the manifest. Without a
            manifest, the time is from the run's lock file.
        cases: How many cases are in each state; None if unknown.
        duration_s: How long the last session took, or has taken so far if the run is in progress.
            None if the session was killed.
        cost: The known cost of all the run's requests, in `currency`. None before the run has
            ended.
        currency: The currency of `cost`.
        bytes: The total size of the run's files, in bytes.
        simulated: Whether any answer came from the simulated provider.
        drawn_from: From how many cases the run's sample was drawn; 0 for a full run.
    """

    name: str
    directory: str
    run_id: str
    verdict: Verdict
    started_at: datetime
    cases: Counts | None = None
    duration_s: float | None = None
    cost: float | None = None
    currency: str | None = None
    bytes: int = 0
    simulated: bool = False
    drawn_from: int = 0

    @property
    def solved_rate(self) -> float | None:
        """The share of solved cases among graded cases; cases graded only by scores are excluded.

        None if there are no other graded cases.
        """
        if self.cases is None or self.cases.graded == self.cases.scored:
            return None
        return self.cases.solved / (self.cases.graded - self.cases.scored)


def find_runs(folder: Path, now: datetime) -> list[FoundRun]:
    """Return the runs in a folder and in its benches, newest first; symbolic links are skipped.

    Args:
        folder: A folder of runs, or the directory of a bench.
        now: The current time, with a time zone.

    Raises:
        ConfigError: The folder does not exist, cannot be read, or is a run itself.
    """
    found: list[FoundRun] = []
    for path in _directories(folder):
        if _is_run(path):
            found.append(_read(path, path.name, now))
        else:
            found += [
                _read(below, f"{path.name}/{below.name}", now)
                for below in _directories_of_a_bench(path)
            ]
    return sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _directories(folder: Path) -> list[Path]:
    if _is_run(folder.resolve()):
        refuse(f"{folder} is a run; pass the folder that contains it")
    with cannot(f"list the runs in {folder}", error=ConfigError), os.scandir(folder) as entries:
        return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _directories_of_a_bench(path: Path) -> Iterator[Path]:
    try:
        below = [one for one in path.iterdir() if one.is_dir() and not one.is_symlink()]
    except OSError:
        return
    yield from filter(_is_run, below)


def _is_run(path: Path) -> bool:
    return run_id_of(path) is not None


def _read(path: Path, name: str, now: datetime) -> FoundRun:
    run_id = run_id_of(path) or path.name
    is_in_use = in_use(path)
    found = FoundRun(
        name=name,
        directory=str(path.absolute()),
        run_id=run_id,
        verdict="running" if is_in_use else "damaged",
        started_at=_modified(path / LOCK_NAME, now),
        bytes=size_of(path),
    )
    if not (path / MANIFEST_NAME).exists():
        # The run ended while pytest collected, or pytest is still collecting.
        return found if is_in_use else msgspec.structs.replace(found, verdict="interrupted")
    try:
        manifest = read_manifest(path)
        ended_at = now if is_in_use else manifest.ended_at
        found = msgspec.structs.replace(
            found,
            started_at=manifest.started_at,
            duration_s=(ended_at - manifest.started_at).total_seconds() if ended_at else None,
            simulated=manifest.simulated,
            drawn_from=manifest.drawn_from,
        )
        return _with_cases(found, path, manifest, is_in_use=is_in_use)
    except ResultsError:
        return found


def _with_cases(found: FoundRun, path: Path, manifest: Manifest, *, is_in_use: bool) -> FoundRun:
    """Return the run with the counts of its cases, its state and its cost filled in.

    Raises:
        ResultsError: One of the run's files cannot be read.
    """
    # Ignore the summary if the run is in progress or was killed, because it is from an earlier
    # session.
    is_over = manifest.ended_at is not None and not is_in_use
    summary = read_summary(path) if is_over else None
    cost = None
    if summary is not None and summary.run_id == manifest.run_id:
        statistics = summary.statistics
        counts = Counts(
            statistics.n_planned,
            statistics.n_final,
            statistics.n_graded,
            statistics.counts["solved"],
            statistics.n_graded - statistics.n_rated,
        )
        cost = summary.cost
    else:
        counts = _count(path)
    verdict = found.verdict
    if not is_in_use:
        is_whole = manifest.ended_at is not None and counts.final == counts.planned
        verdict = "complete" if is_whole else "interrupted"
    return msgspec.structs.replace(
        found,
        verdict=verdict,
        cases=counts,
        cost=None if cost is None else cost.total,
        currency=None if cost is None else cost.currency,
    )


def _count(path: Path) -> Counts:
    """Count the cases of a run by their grades in the journal."""
    cases = read_cases(path)
    history = read_history(path / JOURNAL_NAME).cases
    found = [history[case.case_id].grade for case in cases if case.case_id in history]
    outcomes = [grade.outcome for grade in found if grade is not None]
    n_graded = sum(outcome in GRADED for outcome in outcomes)
    own = outcomes.count("solved"), outcomes.count("scored")
    return Counts(len(cases), len(outcomes), n_graded, *own)


def _modified(path: Path, now: datetime) -> datetime:
    try:
        return datetime.fromtimestamp(path.lstat().st_mtime, UTC)
    except OSError:
        return now


def size_of(path: Path) -> int:
    """Return the total size in bytes of all files in a directory and its subdirectories.

    Files that vanish in the meantime are ignored.
    """
    n_bytes = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                n_bytes += Path(folder, name).lstat().st_size
    return n_bytes
