"""What one mode's run left behind, as far as a comparison needs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pytest_ultrapar.records import Case, EpisodeEnded
from pytest_ultrapar.results.cases_file import read_cases
from pytest_ultrapar.results.history import read_history
from pytest_ultrapar.results.journal import JournalReader
from pytest_ultrapar.results.manifest import Manifest, read_manifest
from pytest_ultrapar.results.measure import CaseMeasure, measure_case
from pytest_ultrapar.results.run_speeds import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.results.run_summary import RunSummary


@dataclass(frozen=True, slots=True)
class ModeRun:
    """A run of which every planned case has a row.

    Attributes:
        cases: Planned ones, by id.
        measures: Of the graded ones, by case id.
        benchmark: Its benchmark file; None when no case was completed.
    """

    mode: str
    directory: Path
    manifest: Manifest
    summary: RunSummary
    cases: dict[str, Case]
    measures: dict[str, CaseMeasure]
    benchmark: dict[str, Any] | None


def read_mode_run(directory: Path, summary: RunSummary) -> ModeRun:
    """All of a run: it came to its end, and its journal is there.

    Raises:
        ResultsError: A file of it cannot be read.
    """
    manifest = read_manifest(directory)
    part = manifest.measured_part
    cases = {case.case_id: case for case in read_cases(directory)}
    history = read_history(directory / "journal")
    reader = JournalReader(directory / "journal")
    measures: dict[str, CaseMeasure] = {}
    try:
        for case_id, case in cases.items():
            found = history.cases.get(case_id)
            if found is None or found.grade is None:
                continue
            entry = found.final_episode()
            episode = reader.read(entry.position) if entry is not None else None
            measures[case_id] = measure_case(
                case,
                found.grade,
                episode if isinstance(episode, EpisodeEnded) else None,
                summary_by=manifest.summary_by,
                part=part,
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
    )
