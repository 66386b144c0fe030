"""The summary at the end, in pytest's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.escape import visible
from pytest_ultrapar.report.summary import summary_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ultrapar.leading.finish import FinishedRun


def show(
    finished: FinishedRun, reporter: pytest.TerminalReporter, unused_faults: Sequence[str] = ()
) -> None:
    """Write the summary. Called by pytest's terminal summary, controller, once.

    Args:
        finished: The run.
        reporter: Pytest's.
        unused_faults: What the run's simulated provider was to do wrong and never did.
    """
    reporter.section("ultrapar")
    if finished.summary is not None:
        lines = summary_lines(
            finished.summary,
            finished.manifest.lanes,
            directory=str(finished.directory),
            width=reporter._tw.fullwidth,  # noqa: SLF001 - pytest 9.2.0, terminal.py:405
        )
        for line in lines:
            reporter.write_line(line)
    for label in unused_faults:
        said = f'the simulated provider: fault "{label}" took no request'
        reporter.write_line(visible(said), yellow=True)
    if finished.gate is not None:
        for line in finished.gate.lines:
            reporter.write_line(line)
    if finished.stopped is not None:
        reporter.write_line(visible(finished.stopped), yellow=True)
    show_failures(finished, reporter)


def show_failures(finished: FinishedRun, reporter: pytest.TerminalReporter) -> None:
    """Say why the run as a whole failed; at every verbosity, as an exit code needs its reason."""
    for failure in finished.failures:
        reporter.write_line(f"FAILED: {visible(failure)}", red=True)
