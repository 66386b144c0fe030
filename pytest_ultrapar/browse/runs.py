"""The runs of a folder, each in a few figures."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from pytest_ultrapar.analysis.run_summary import RunSummary, read_summary
from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.report.text import visible
from pytest_ultrapar.store.manifest import FILE_NAME, Manifest, read_manifest
from pytest_ultrapar.store.run_directory import is_in_use

State = Literal["complete", "interrupted", "going on", "unreadable"]


class RunLine(msgspec.Struct, frozen=True):
    """A run in a list of runs.

    Attributes:
        path: Its directory, as it is named below the folder.
        state: `interrupted`: planned cases have no grade and nobody works on it.
        started_at: None where the run cannot be read.
        solved: Share of the graded cases; None where none was graded.
        duration_s: From the first request to the end of the last episode.
        n_bytes: Of all files in the directory.
        trouble: Why it cannot be read; else empty.
    """

    run_id: str
    path: str
    state: State
    started_at: datetime | None = None
    simulated: bool = False
    models: tuple[str, ...] = ()
    n_cases: int = 0
    n_graded: int = 0
    solved: float | None = None
    duration_s: float | None = None
    cost: float | None = None
    currency: str = ""
    n_bytes: int = 0
    trouble: str = ""


def runs_in(folder: Path) -> list[RunLine]:
    """The runs of a folder, the newest first; what is no run is left out.

    Symbolic links, such as `latest`, are not followed.

    Raises:
        ConfigError: There is no such folder, or it cannot be read.
    """
    try:
        found = [
            path
            for path in folder.iterdir()
            if path.is_dir() and not path.is_symlink() and (path / FILE_NAME).is_file()
        ]
    except OSError as error:
        msg = f"{folder}: {error.strerror or error}"
        raise ConfigError(msg) from error
    # What cannot be read has no time of its own, and comes last.
    began = datetime.min.replace(tzinfo=UTC)
    lines = map(_line, found)
    return sorted(lines, key=lambda one: (one.started_at or began, one.path), reverse=True)


def _line(path: Path) -> RunLine:
    n_bytes = size_of(path)
    try:
        manifest, summary = read_manifest(path), read_summary(path)
    except ResultsError as error:
        return RunLine(
            visible(path.name),
            str(path),
            "unreadable",
            n_bytes=n_bytes,
            trouble=visible(str(error)),
        )
    line = RunLine(
        visible(manifest.run_id),
        str(path),
        _state(path, manifest, summary),
        manifest.started_at,
        manifest.simulated,
        tuple(map(visible, manifest.models)),
        manifest.n_planned,
        n_bytes=n_bytes,
    )
    if summary is None:
        return line
    statistics, cost = summary.statistics, summary.cost
    n_graded = statistics.n_graded
    return msgspec.structs.replace(
        line,
        n_graded=n_graded,
        solved=statistics.counts["solved"] / n_graded if n_graded else None,
        duration_s=statistics.makespan_s,
        cost=None if cost is None else cost.total,
        currency="" if cost is None else cost.currency,
    )


def _state(path: Path, manifest: Manifest, summary: RunSummary | None) -> State:
    if is_in_use(path):
        return "going on"
    if summary is None or manifest.ended_at is None or summary.n_without_grade:
        return "interrupted"
    return "complete"


def size_of(directory: Path) -> int:
    """Bytes of all files below a directory; what goes meanwhile counts nothing."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += Path(parent, name).lstat().st_size
            except OSError:
                continue
    return total
