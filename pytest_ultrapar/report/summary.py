"""What a run says of itself when it is over, as plain text; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.escape import visible
from pytest_ultrapar.report.lane_lines import lane_lines, n_failed_requests
from pytest_ultrapar.report.numbers import counted, duration, percent, rate, times
from pytest_ultrapar.report.performance import performance_lines
from pytest_ultrapar.report.text_table import text_table
from pytest_ultrapar.results.run_summary import Cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.lanes.protocol import LaneStatus
    from pytest_ultrapar.results.run_summary import RunSummary
    from pytest_ultrapar.results.statistics import Basis

MOST_ROWS = 100
MOST_SHOWN = 5
SIMULATED = (
    "SIMULATED: all of this comes from the simulated provider and says nothing of a real model"
)
_LONGEST = 200
_LEGEND = (
    "n: graded cases, each in the suite that asked it; 95 % interval: of solved, by Wilson,"
    " cases that the suite says depend on each other counted as one cluster; scores: means over the"
    " cases that have them, in the order in which tests gave them"
)
_NO_INTERVAL = "; all has no interval, since its cases may share tasks"
_BASIS: dict[Basis, str] = {
    "estimated": (
        "estimated from their own service times, usually too high; ultrapar bench measures it"
    ),
    "sampled": "by that sample",
    "full": "measured",
}


def summary_lines(
    summary: RunSummary, lanes: Sequence[LaneStatus], *, directory: str, width: int
) -> list[str]:
    """The lines of the summary, without colours and safe for a terminal.

    Args:
        summary: What the compaction found.
        lanes: What became of each lane.
        directory: Where the results are, as it should be shown.
        width: Of the terminal, in characters; only the table is fitted to it.
    """
    lines = [SIMULATED] if summary.simulated else []
    if summary.cells:
        lines += [*_table(summary, width), ""]
    lines += [*_outcomes(summary), *_speed(summary), *performance_lines(summary, lanes)]
    lines += [*lane_lines(lanes), *_unharmed(summary, lanes), *_troubles(summary)]
    lines.append(f"results in {visible(directory)}: {', '.join(summary.files)}")
    return lines


def _table(summary: RunSummary, width: int) -> list[str]:
    cells = summary.cells[:MOST_ROWS]
    statistics = summary.statistics
    everything = Cell(
        names=("all", *("" for _ in summary.summary_by[1:])),
        n=statistics.n_final,
        n_graded=statistics.n_graded,
        counts=statistics.counts,
        scores=statistics.scores,
    )
    scores = list(statistics.scores)
    n_names = len(summary.summary_by)
    header = [*summary.summary_by, "n", "solved", "95 % interval", "partial", "unsolved"]
    header += ["not graded", *scores]
    totals = [everything] if len(summary.cells) > 1 else []
    rows = [_row(cell, scores) for cell in cells]
    rows += [_row(cell, scores) for cell in totals]
    lines = text_table(
        [visible(text) for text in header],
        [[visible(text) for text in row] for row in rows],
        n_names=n_names,
        width=width,
    )
    n_more = len(summary.cells) - len(cells)
    if n_more:
        lines.insert(len(rows), f"({counted(n_more, 'more row')} in the tables)")
    return [*lines, _LEGEND + (_NO_INTERVAL if totals else "")]


def _row(cell: Cell, scores: Sequence[str]) -> list[str]:
    n = cell.n_graded
    return [
        *cell.names,
        str(n),
        percent(cell.counts["solved"] / n) if n else "-",
        " to ".join(f"{bound * 100:.1f}" for bound in cell.interval) if cell.interval else "-",
        percent(cell.counts["partial"] / n) if n else "-",
        percent(cell.counts["unsolved"] / n) if n else "-",
        str(cell.n - n),
        *(f"{cell.scores[name].mean:.3f}" if name in cell.scores else "-" for name in scores),
    ]


def _outcomes(summary: RunSummary) -> Iterator[str]:
    statistics = summary.statistics
    counts = dict(statistics.counts)
    never = {"never ran": summary.n_never_ran} if summary.n_never_ran else {}
    shown = ", ".join(f"{n} {outcome}" for outcome, n in {**counts, **never}.items())
    yield (
        f"{counted(statistics.n_planned, 'case')}: {shown}; {statistics.n_graded} graded,"
        f" coverage {percent(statistics.coverage)}"
    )
    if statistics.scores:
        means = (
            f"{visible(name)} {score.mean:.3f} (n = {score.n})"
            for name, score in statistics.scores.items()
        )
        yield f"mean scores: {', '.join(means)}"


def _speed(summary: RunSummary) -> Iterator[str]:
    statistics = summary.statistics
    sample = statistics.sample
    if sample is not None:
        yield (
            f"serial sample: {counted(sample.n, 'case')} one after another in"
            f" {duration(sample.duration_s)}, {rate(sample.n / sample.duration_s)};"
            " not in the times below"
        )
    if statistics.makespan_s is not None and statistics.throughput is not None:
        latency = statistics.latency
        tail = (
            f"; latency p50 {duration(latency.p50_s)}, p95 {duration(latency.p95_s)},"
            f" p99 {duration(latency.p99_s)}"
            if latency is not None
            else ""
        )
        yield (
            f"{summary.mode}: {counted(statistics.n_timed, 'case')}"
            f"{summary.session} in"
            f" {duration(statistics.makespan_s)}, {rate(statistics.throughput)}{tail}"
        )
    if (
        statistics.speedup is not None
        and statistics.serial_s is not None
        and summary.mode != "serial"
    ):
        yield (
            f"one after another they would take {duration(statistics.serial_s)}"
            f" ({_BASIS[statistics.basis]}): speed-up {times(statistics.speedup)}"
            f"{_between(statistics.speedup_interval)}"
        )
    if summary.n_requests:
        tokens = [
            f"{counted(n, 'token')} {direction}"
            for n, direction in ((statistics.tokens_in, "in"), (statistics.tokens_out, "out"))
            if n is not None
        ]
        yield ", ".join([counted(statistics.n_attempts, "request"), *tokens])
        if (first := summary.first_token) is not None:
            yield (
                f"first token of {counted(first.n, 'stream')} after p50 {duration(first.p50_s)},"
                f" p95 {duration(first.p95_s)}, p99 {duration(first.p99_s)}"
            )
        n_more = summary.n_requests - statistics.n_attempts
        if n_more:
            yield f"{counted(n_more, 'request')} more, of episodes that were begun and do not count"
        if summary.n_maybe_billed:
            yield (
                f"{counted(summary.n_maybe_billed, 'request')} brought no answer and may have been "
                "billed all the same"
            )


def _between(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f" (interval of at least 95 %: {times(low)} to {times(high)})"


def _unharmed(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    counts = summary.statistics.counts
    n_failed = n_failed_requests(lanes)
    if n_failed and not counts["infra"] + counts["error"] + summary.n_never_ran:
        yield f"{counted(n_failed, 'failed request')}, and no case was lost"


def _troubles(summary: RunSummary) -> Iterator[str]:
    if summary.kinds:
        kinds = (f"{n} {visible(kind)}" for kind, n in summary.kinds.items())
        yield f"kinds: {', '.join(kinds)}"
    for note in summary.notes[:MOST_SHOWN]:
        reason = (note.error or note.kind or "").strip().partition("\n")[0]
        yield f"  {note.outcome}: {visible(note.nodeid)}: {visible(reason, _LONGEST)}"
    yield from _more(
        summary.statistics.counts["error"] + summary.statistics.counts["infra"],
        len(summary.notes),
    )
    for nodeid in summary.never_ran[:MOST_SHOWN]:
        yield f"  never ran: {visible(nodeid)}"
    yield from _more(summary.n_never_ran, len(summary.never_ran))
    for damage in summary.damage[:MOST_SHOWN]:
        yield (
            f"  journal damaged: {damage.segment}, {counted(damage.length, 'byte')} from"
            f" {damage.offset}: {visible(damage.reason, _LONGEST)}; --ultrapar-resume runs what was"
            " lost there again"
        )


def _more(n: int, n_known: int) -> Iterator[str]:
    n_hidden = n - min(n_known, MOST_SHOWN)
    if n_hidden > 0:
        yield f"  ... and {n_hidden:,} more"
