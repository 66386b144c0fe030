"""Make the report of `ultrapar bench` as plain text. All functions are pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.equivalence import changed, equivalence, graded_pairs
from pytest_ultrapar.analysis.paired import typical_ratio
from pytest_ultrapar.analysis.slowdown import NOTICED
from pytest_ultrapar.compare.bench.merged import base_run, full_speedup
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.settings import ONE_AT_A_TIME
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.report.text import (
    columns_of,
    counted,
    duration,
    listed,
    or_dash,
    percent,
    rate,
    text_table,
    times,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.compare.bench.merged import ModeRun

_SHOWN = 3
_VERDICTS = {"same": "the same", "different": "DIFFERENT", "undecided": "not decided"}


def report_lines(runs: Sequence[ModeRun], *, width: int) -> list[str]:
    """Report the time and speed-up of each mode, and whether the modes' answers are the same.

    Args:
        runs: One or more runs. All have the same cases, and at least one of them completed a case.
        width: The width of the terminal, in characters.
    """
    first = runs[0]
    lines = [SIMULATED] if any(run.manifest.simulated for run in runs) else []
    lines.append(
        f"{counted(len(first.cases), 'case')}, {', '.join(run.mode for run in runs)};"
        f" seed {first.manifest.seed}, pool {visible(first.manifest.pool_path)}"
    )
    header, rows = columns_of([_row(run, runs) for run in runs])
    lines += ["", *text_table(header, rows, n_names=1, width=width)]
    return [*lines, "", *_basis(runs), *_longer(runs), *_bounds(runs), *_answers(runs)]


def _row(run: ModeRun, runs: Sequence[ModeRun]) -> dict[str, str]:
    summary, statistics = run.summary, run.summary.statistics
    factor, interval = _speedup(run, runs)
    return {
        "mode": run.mode,
        "cases": f"{statistics.n_timed:,}",
        "makespan": or_dash(statistics.makespan_s, duration),
        "rate": or_dash(statistics.throughput, rate),
        "speed-up": f"{factor:,.2f}x" if factor is not None else "-",
        "interval, at least 95 %": (
            f"{interval[0]:,.2f} to {interval[1]:,.2f}" if interval is not None else "-"
        ),
        "in flight": f"{summary.peak_in_flight:,}",
        "coverage": percent(statistics.coverage),
        "bound": or_dash(summary.bound_s, duration),
        "efficiency": or_dash(summary.efficiency, percent),
    }


def _speedup(
    run: ModeRun, runs: Sequence[ModeRun]
) -> tuple[float | None, tuple[float, float] | None]:
    statistics, base = run.summary.statistics, base_run(runs)
    if base is None:
        return statistics.speedup, statistics.speedup_interval
    if base is run:
        return statistics.speedup and 1.0, None
    found = full_speedup(base, run, lambda _: True)
    return (found.factor, found.interval) if found is not None else (None, None)


def _basis(runs: Sequence[ModeRun]) -> Iterator[str]:
    base = base_run(runs)
    if base is None:
        yield (
            "speed-up over serial: an upper bound, from the sum of each run's own service times; to"
            " measure the speed-up, add serial to --modes"
        )
    elif len(runs) > 1:
        like_serial = ", which runs one case at a time, like serial"
        yield (
            f"speed-up over {base.mode}{like_serial if base.mode != 'serial' else ''}: measured on"
            " the same cases; interval from a bootstrap over cases or, for 3 to 7 cases, from "
            "Student's t at 99 %"
        )


def _longer(runs: Sequence[ModeRun]) -> Iterator[str]:
    """Say how much longer answers took with more requests in flight, and suggest a next step."""
    base = base_run(runs) or runs[0]
    for run in runs:
        both = [name for name in run.measures if name in base.measures and run is not base]
        pairs = [(base.measures[name], run.measures[name]) for name in both]
        known = [(one.service_s, own.service_s) for one, own in pairs if one.timed and own.timed]
        found = typical_ratio(*zip(*known, strict=True)) if known else None
        if found is None or found[0] < NOTICED or found[1].low <= 1:
            continue
        yield (
            f"{run.mode}: the same answers took {times(found[0])} as long as in {base.mode}: the"
            " servers share a resource, or slow down under load"
        )
        if run.manifest.rate_mode == "fixed":
            # Leave out the first two arguments, the mode and the directory: `ultrapar bench` added
            # them.
            own_words, rest = ("--ultrapar-mode=", "--ultrapar-out="), run.manifest.arguments[2:]
            kept = (one for one in rest if not one.startswith(own_words))
            command = shlex.join(["pytest", *kept, "--ultrapar-rate-mode=adaptive"])
            yield f"  to find the best load: {visible(command)}"


def _bounds(runs: Sequence[ModeRun]) -> Iterator[str]:
    bound_by = {run.mode: _bound_by(run) for run in runs}
    for what in dict.fromkeys(filter(None, bound_by.values())):
        modes = ", ".join(mode for mode, one in bound_by.items() if one == what)
        yield f"{modes}: bound by {visible(what)}"
    for run in runs:
        if run.summary.client_bound:
            yield f"{run.mode}: {visible(run.summary.client_bound)}"


def _bound_by(run: ModeRun) -> str | None:
    """Name what determines the lower bound for the run's makespan."""
    one_by_one_s = sum(each.service_s for each in run.measures.values() if each.timed)
    if run.mode in ONE_AT_A_TIME and one_by_one_s >= (run.summary.bound_s or 0.0):
        return "running one case at a time"
    return run.summary.binding


def _answers(runs: Sequence[ModeRun]) -> Iterator[str]:
    base = base_run(runs) or runs[0]
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
            yield f"  {listed(names, _SHOWN)}"
