"""The end of a run: tables, manifest, coverage and the summary on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_ultrapar.run import Run


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is over."""

    failures: tuple[str, ...] = ()


def finish(run: Run) -> FinishedRun:
    """Write."""
    return FinishedRun()


def show(finished: FinishedRun, reporter: pytest.TerminalReporter) -> None:
    """Show."""
