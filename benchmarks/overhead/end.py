"""How long a command goes on after its last item: tables, summary, the interpreter's own end."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.overhead.command_line import note
from benchmarks.overhead.comparison import run_workload, sized
from benchmarks.overhead.rounds import Measurement
from benchmarks.overhead.tables import at_most, figures, goals, median
from benchmarks.overhead.workload import MANY, SMALL
from pytest_ultrapar.records import Grade
from pytest_ultrapar.store.journal import decode_record, scan_segment, segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.overhead.command_line import Options
    from benchmarks.overhead.tables import Rows
    from benchmarks.overhead.workload import Workload

_MOST_S = {SMALL: 0.15, MANY: 1.0}


def end_round(options: Options) -> Rows:
    """Run few cases and many: `rest_s` is the last item's report to the end of the command.

    Raises:
        CommandError: A command ended badly, or not all requests were answered.
        ConfigError: The pool cannot be served.
    """
    rows: Rows = {}
    for workload in _MOST_S:
        run = sized(workload, options)
        for n in options.n or (0,):
            label = _label(run, n)
            note(label)
            with tempfile.TemporaryDirectory(prefix="overhead-") as kept:
                cost, _ = run_workload(run, n, options, directory=Path(kept))
                ended_s = cost.started_s + cost.wall_s
                rows[label] = {
                    "rest_s": ended_s - last_report_s(Path(kept)),
                    "wall_s": cost.wall_s,
                    "cpu_s": cost.cpu_s,
                }
    return rows


def last_report_s(directory: Path) -> float:
    """When the last case was graded, by the monotonic clock: its report follows at once.

    By the journal, which every checkout writes: a plugin would have to be in each of them.

    Args:
        directory: Holds one run.
    """
    (journal,) = directory.rglob("journal")
    records = (one for path in segments(journal) for _, one in scan_segment(path, decode_record))
    last_us = max(record.at_us for record in records if isinstance(record, Grade))
    return last_us / 1e6 - (time.time() - time.monotonic())


def end_lines(rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """The figures, and what is to be reached by as many cases without xdist."""
    yield f"the end of a run; median [min-max] of {len(rounds)}; simulated"
    yield from figures(rounds)
    if options.cases is None:
        labels = {_label(workload, 0): most_s for workload, most_s in _MOST_S.items()}
        yield from goals(
            *(
                at_most(f"{label}: rest_s", median(rounds, label, "rest_s"), most_s)
                for label, most_s in labels.items()
                if label in rounds[0]
            )
        )


def _label(workload: Workload, n_processes: int) -> str:
    return f"{workload.name}: {workload.n_cases:,} cases, -n {n_processes}"


END = Measurement(end_round, end_lines)
