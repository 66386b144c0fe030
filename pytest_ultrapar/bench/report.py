"""The report of `ultrapar bench` as plain text; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.bench.speedups import SERIAL, full_speedup
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.escape import visible
from pytest_ultrapar.report.numbers import counted, duration, percent, rate
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.report.text_table import text_table
from pytest_ultrapar.results.equivalence import changed, equivalence, graded_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.bench.mode_run import ModeRun

_HEADER = (
    "mode",
    "cases",
    "makespan",
    "rate",
    "speed-up",
    "95 % interval",
    "in flight",
    "coverage",
    "bound",
    "efficiency",
)
_SHOWN = 3
_VERDICTS = {"same": "the same", "different": "DIFFERENT", "undecided": "not decided"}


def report_lines(runs: Sequence[ModeRun], *, width: int) -> list[str]:
    """What the modes took, how much faster each was, and whether their answers agree.

    Args:
        runs: At least one, of the same cases; one of them completed a case.
        width: Of the terminal, in characters.
    """
    first = runs[0]
    lines = [SIMULATED] if any(run.manifest.simulated for run in runs) else []
    lines.append(
        f"{counted(len(first.cases), 'case')}, {', '.join(run.mode for run in runs)};"
        f" seed {first.manifest.seed}, pool {visible(first.manifest.pool_path)}"
    )
    lines += ["", *text_table(_HEADER, [_row(run, runs) for run in runs], n_names=1, width=width)]
    return [*lines, "", *_basis(runs), *_bounds(runs), *_answers(runs)]


def _row(run: ModeRun, runs: Sequence[ModeRun]) -> list[str]:
    summary, statistics = run.summary, run.summary.statistics
    factor, interval = _speedup(run, runs)
    return [
        run.mode,
        f"{statistics.n_timed:,}",
        duration(statistics.makespan_s) if statistics.makespan_s is not None else "-",
        rate(statistics.throughput) if statistics.throughput is not None else "-",
        f"{factor:,.2f}x" if factor is not None else "-",
        f"{interval[0]:,.2f} to {interval[1]:,.2f}" if interval is not None else "-",
        f"{summary.peak_in_flight:,}",
        percent(statistics.coverage),
        duration(summary.bound_s) if summary.bound_s is not None else "-",
        percent(summary.efficiency) if summary.efficiency is not None else "-",
    ]


def _speedup(
    run: ModeRun, runs: Sequence[ModeRun]
) -> tuple[float | None, tuple[float, float] | None]:
    statistics = run.summary.statistics
    serial = next((one for one in runs if one.mode == SERIAL), None)
    if serial is not None and serial is not run:
        found = full_speedup(serial.measures, run.measures, lambda _: True)
        return (found.factor, found.interval) if found is not None else (None, None)
    return statistics.speedup, statistics.speedup_interval


def _basis(runs: Sequence[ModeRun]) -> Iterator[str]:
    modes = {run.mode for run in runs}
    if modes == {SERIAL}:
        return
    if SERIAL in modes:
        yield "speed-up over serial: measured on the same cases; interval by bootstrap over cases"
    else:
        yield (
            "speed-up over serial: estimated from each run's own service times, since no serial"
            " run is among them"
        )


def _bounds(runs: Sequence[ModeRun]) -> Iterator[str]:
    for run in runs:
        if run.summary.binding is not None:
            yield f"{run.mode}: bound by {visible(run.summary.binding)}"
        if run.summary.client_bound:
            yield f"{run.mode}: {visible(run.summary.client_bound)}"


def _answers(runs: Sequence[ModeRun]) -> Iterator[str]:
    base = next((run for run in runs if run.mode == SERIAL), runs[0])
    for run in runs:
        if run is base:
            continue
        pair = f"answers: {run.mode} and {base.mode}"
        try:
            found = equivalence(base.measures.values(), run.measures.values())
        except ConfigError as error:
            yield f"{pair}: {error}"
            continue
        yield f"{pair}: {_VERDICTS[found.verdict]}: {visible(found.text)}"
        pairs = graded_pairs(base.measures.values(), run.measures.values())
        names = [
            visible(base.cases[one.case_id].nodeid) for one, other in pairs if changed(one, other)
        ]
        if names:
            more = len(names) - _SHOWN
            yield f"  {', '.join(names[:_SHOWN])}{f' and {more:,} more' if more > 0 else ''}"
