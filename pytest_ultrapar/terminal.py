"""The summary at the end, in pytest's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_ultrapar.finish import FinishedRun


def show(finished: FinishedRun, reporter: pytest.TerminalReporter) -> None:
    """Write the summary. Called by pytest's terminal summary, controller, once."""
    reporter.section("ultrapar")
    for failure in finished.failures:
        reporter.write_line(f"FAILED: {failure}", red=True)
