"""Runs of a folder as a table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.text import counted, duration, one_line, percent, text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.report.browse.run_folder import FoundRun

_NOTHING = "-"
_HEADER = ("run", "state", "started (UTC)", "cases", "solved", "session", "cost", "size")
_UNITS = ("B", "kB", "MB", "GB", "TB")


def run_table(runs: Sequence[FoundRun], *, width: int) -> list[str]:
    """A line for each run.

    Args:
        runs: In this order.
        width: Characters for a line.
    """
    return text_table(_HEADER, [_cells(run) for run in runs], n_names=3, width=width)


def sum_line(runs: Sequence[FoundRun]) -> str:
    """How many there are, and what they take together."""
    return f"{counted(len(runs), 'run')}, {size(sum(run.bytes for run in runs))}"


def size(n_bytes: int) -> str:
    """Bytes with two digits or so: `999 B`, `1.2 MB`, `34 GB`."""
    power = min((len(str(n_bytes)) - 1) // 3, len(_UNITS) - 1)
    amount = n_bytes / 1000**power
    digits = 1 if power and amount < 10 else 0  # noqa: PLR2004 - two digits
    return f"{amount:,.{digits}f} {_UNITS[power]}"


def _cells(run: FoundRun) -> list[str]:
    cases = run.cases
    rate = run.solved_rate
    return [
        one_line(run.name),
        f"{run.verdict}, SIMULATED" if run.simulated else run.verdict,
        f"{run.started_at:%Y-%m-%d %H:%M}",
        _NOTHING if cases is None else f"{cases.graded:,}/{cases.planned:,}",
        _NOTHING if rate is None else percent(rate),
        _NOTHING if run.duration_s is None else duration(run.duration_s),
        _NOTHING if run.cost is None or run.currency is None else money(run.cost, run.currency),
        size(run.bytes),
    ]
