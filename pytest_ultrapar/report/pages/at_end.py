"""Write the HTML report of a finished run, in the process that made the run's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.pages.page import TEMPLATE, write_page
from pytest_ultrapar.report.pages.page_template import template
from pytest_ultrapar.report.report_file import PAGE

if TYPE_CHECKING:
    from pathlib import Path

template(TEMPLATE)  # compiled when it is imported, while the run is still in progress


def at_end(run_dir: Path) -> None:
    """Write the HTML report. The process that made the tables calls this after handing them over.

    Raises:
        ConfigError: The run's tables are damaged.
        ResultsError: The file cannot be written.
    """
    write_page(run_dir, run_dir / PAGE)
