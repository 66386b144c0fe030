"""The page of a run that is over, made by the process that has made its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.file import PAGE
from pytest_ultrapar.report.pages.frame import template
from pytest_ultrapar.report.pages.page import TEMPLATE, write_page

if TYPE_CHECKING:
    from pathlib import Path

template(TEMPLATE)  # compiled with the import, while the run goes on


def at_end(run_dir: Path) -> None:
    """Write the page. Called by that process, when whoever waits for the tables has them.

    Raises:
        ConfigError: The run's tables are damaged.
        ResultsError: The page cannot be written.
    """
    write_page(run_dir, run_dir / PAGE)
