"""What an earlier session of a run measured, kept where a later one had nothing left to measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.results.run_summary import RunSummary, read_summary

if TYPE_CHECKING:
    from pathlib import Path

_SPEED = (
    "n_timed",
    "makespan_s",
    "throughput",
    "serial_s",
    "basis",
    "speedup",
    "speedup_interval",
    "sample",
    "latency",
)
_PERFORMANCE = (
    "peak_in_flight",
    "bound_s",
    "binding",
    "efficiency",
    "attribution",
    "audit",
    "client_bound",
    "first_token",
)


def earlier_summary(run_dir: Path) -> RunSummary | None:
    """The summary that is there; None where there is none that can be read."""
    try:
        return read_summary(run_dir)
    except ResultsError:
        return None


def keep_speed(summary: RunSummary, earlier: RunSummary) -> RunSummary:
    """The new summary with all that the earlier one says of speed and limits; pure."""
    speed = {name: getattr(earlier.statistics, name) for name in _SPEED}
    performance = {name: getattr(earlier, name) for name in _PERFORMANCE}
    statistics = msgspec.structs.replace(summary.statistics, **speed)
    return msgspec.structs.replace(
        summary, statistics=statistics, measured_earlier=True, **performance
    )
