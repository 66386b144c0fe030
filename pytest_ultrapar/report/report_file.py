"""Write the report of a run to a file in the run's directory, or to a step summary on GitHub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.rerun_commands import rerun_lines
from pytest_ultrapar.report.sections import Section, markdown_lines, markdown_within
from pytest_ultrapar.report.summary import summary_sections
from pytest_ultrapar.system.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.store.manifest import Manifest

REPORT, PAGE = "report.md", "report.html"
_LEAST_OF_A_STEP = 10_000


MOST_OF_A_STEP = 1024 * 1024
"""The maximum size of the summary that a step in a job may write, in bytes.

Source: GitHub Actions, workflow commands: step isolation and limits.
"""


def add_to_step_summary(path: Path, summary: RunSummary, manifest: Manifest, run_dir: Path) -> None:
    """Append a run's report to the file that GitHub shows as the summary of a job's step.

    Args:
        path: The file that `GITHUB_STEP_SUMMARY` names. Its earlier content is kept.
        summary: The summary that the compaction made.
        manifest: The run's manifest, with the final state of its lanes.
        run_dir: The run's directory.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("ab") as file:
        room = MOST_OF_A_STEP - file.tell()
        sections = run_sections(summary, manifest, run_dir)
        if room > _LEAST_OF_A_STEP:
            file.write(f"{markdown_within(sections, room - 1)}\n".encode())


def run_sections(
    summary: RunSummary, manifest: Manifest, run_dir: Path, *, goes_on: bool = False
) -> Iterator[Section]:
    """Yield the whole report of the run in this directory, with the commands that rerun cases."""
    yield from summary_sections(summary, manifest.lanes, directory=str(run_dir), goes_on=goes_on)
    counts = {**summary.statistics.counts, "never ran": summary.n_without_grade * (not goes_on)}
    if notes := (*rerun_lines(manifest, counts, run_dir),):
        yield Section("Run again", notes=notes)


def write_report(path: Path, summary: RunSummary, manifest: Manifest) -> None:
    """Write `report.md`.

    Args:
        path: The run's directory.
        summary: The summary that the compaction made.
        manifest: The run's manifest, with the final state of its lanes.

    Raises:
        ResultsError: The report cannot be written.
    """
    sections = run_sections(summary, manifest, path)
    write_whole(path / REPORT, ("\n".join(markdown_lines(sections)) + "\n").encode())
