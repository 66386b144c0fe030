"""All that a run says of itself, as a file of its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.publish import write_whole
from pytest_ultrapar.report.sections import markdown_lines
from pytest_ultrapar.report.summary import summary_sections

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.store.manifest import Manifest

REPORT = "report.md"


def write_report(path: Path, summary: RunSummary, manifest: Manifest) -> None:
    """Write all that there is to say of a run.

    Args:
        path: The run's directory.
        summary: What the compaction found.
        manifest: The run's, with what became of its lanes.

    Raises:
        ResultsError: It cannot be written.
    """
    sections = summary_sections(summary, manifest.lanes, directory=str(path))
    write_whole(path / REPORT, ("\n".join(markdown_lines(sections)) + "\n").encode())
