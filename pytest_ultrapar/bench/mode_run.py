"""What one mode's run left behind, as far as a comparison needs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import Case, EpisodeEnded
from pytest_ultrapar.results.benchmark_json import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.results.cases_file import read_cases
from pytest_ultrapar.results.history import read_history
from pytest_ultrapar.results.journal import JournalReader
from pytest_ultrapar.results.manifest import Manifest, read_manifest
from pytest_ultrapar.results.measure import CaseMeasure, measure_case
from pytest_ultrapar.results.run_summary import SUMMARY_FILE, RunSummary


@dataclass(frozen=True, slots=True)
class ModeRun:
    """A run of which every planned case has a row.

    Attributes:
        cases: Planned ones, by id.
        measures: Of the graded ones, by case id.
        benchmark: Its benchmark file; None when no case was completed.
        peak_in_flight: The most requests that were under way at one moment.
    """

    mode: str
    directory: Path
    manifest: Manifest
    summary: RunSummary
    cases: dict[str, Case]
    measures: dict[str, CaseMeasure]
    benchmark: dict[str, Any] | None
    peak_in_flight: int


def read_summary(directory: Path) -> RunSummary | None:
    """The summary of a run; None while there is none, because it was stopped before.

    Raises:
        ResultsError: It cannot be read.
    """
    path = directory / SUMMARY_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunSummary)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        msg = f"cannot read {path}: {error}"
        raise ResultsError(msg) from error


def read_mode_run(directory: Path, summary: RunSummary) -> ModeRun:
    """All of a run: it came to its end, and its journal is there.

    Raises:
        ResultsError: A file of it cannot be read.
    """
    manifest = read_manifest(directory)
    cases = {case.case_id: case for case in read_cases(directory)}
    history = read_history(directory / "journal")
    reader = JournalReader(directory / "journal")
    measures: dict[str, CaseMeasure] = {}
    flights: list[tuple[float, float]] = []
    try:
        for case_id, case in cases.items():
            found = history.cases.get(case_id)
            if found is None or found.grade is None:
                continue
            entry = found.final_episode()
            episode = reader.read(entry.position) if entry is not None else None
            if isinstance(episode, EpisodeEnded):
                flights += [(each.t_send_s, each.t_end_s) for each in episode.attempts]
            measures[case_id] = measure_case(
                case,
                found.grade,
                episode if isinstance(episode, EpisodeEnded) else None,
                summary_by=manifest.summary_by,
            )
    finally:
        reader.close()
    path = directory / BENCHMARK_FILE
    return ModeRun(
        mode=manifest.mode,
        directory=directory,
        manifest=manifest,
        summary=summary,
        cases=cases,
        measures=measures,
        benchmark=msgspec.json.decode(path.read_bytes()) if path.exists() else None,
        peak_in_flight=most_at_once(flights),
    )


def most_at_once(intervals: list[tuple[float, float]]) -> int:
    """The most intervals that hold one moment; one that ends as another begins is over by then."""
    events = sorted([(start, 1) for start, _ in intervals] + [(end, -1) for _, end in intervals])
    most = now = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most
