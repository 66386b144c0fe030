"""The page of a comparison: the verdict, changes, the runs, and cases that flipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.compare.changes import changed_dimensions, changed_tests, grid_of
from pytest_ultrapar.compare.figures import NONE, figure_text, interval_text
from pytest_ultrapar.compare.flips import GAINED, LOST, TURNS, read_flips
from pytest_ultrapar.compare.report import comparison_sections, differences
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.pages.drawn import Scale, axis, interval
from pytest_ultrapar.report.pages.figures import labels
from pytest_ultrapar.report.pages.frame import Tile, embedded, framed
from pytest_ultrapar.report.pages.plots import plot_of
from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.report.text import (
    columns_of,
    counted,
    duration,
    listed,
    one_line,
    or_dash,
    percent,
    rate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.equivalence import Look
    from pytest_ultrapar.analysis.measured_run import MeasuredRun
    from pytest_ultrapar.compare.changes import ChangedDimension
    from pytest_ultrapar.compare.comparison import Comparison
    from pytest_ultrapar.compare.flips import Flip
    from pytest_ultrapar.compare.pairing import Pairing
    from pytest_ultrapar.report.pages.plots import Plot

_MOST_ROWS = 20
"""Of a plot of changes."""


def render(base: MeasuredRun, comparisons: Sequence[Comparison]) -> bytes:
    """The page as HTML in UTF-8.

    Args:
        base: The baseline.
        comparisons: Each other run beside it, at least one; changes and cases are those of the
            last.

    Raises:
        ConfigError: A table of a run cannot be read.
    """
    shown = comparisons[-1]
    pairing = shown.pairing
    grid = grid_of(pairing)
    flips = read_flips(pairing, grid)
    dimensions = changed_dimensions(pairing, grid)
    (verdict, *_) = comparison_sections(base, [shown])
    runs = [base, *(one.pairing.new for one in comparisons)]
    models = labels(grid.models)
    data = {
        "flips": flips.lines,
        "models": models,
        "turns": TURNS,
        "dimensions": [{"name": one.name, "values": one.values} for one in dimensions],
    }
    return framed(
        "compare/page.html.j2",
        "compare/page.js",
        embedded(data),
        parts=flips.parts,
        n_left_out=flips.n_left_out,
        state="",
        newest=pairing.new,
        base=base,
        simulated=SIMULATED if any(run.manifest.simulated for run in runs) else "",
        earlier=base.run_id,
        suite=listed(sorted({case.suite for case in pairing.cases}), 2),
        outcome=_outcome(dimensions[-1].looks[0][0]),
        plots=[*_plots(pairing)],
        cautions=[*differences(pairing)],
        verdict=verdict.notes,
        tiles=[*_tiles_of_answers(dimensions[-1], flips.lines), *_tiles_of_speed(shown)],
        dimensions=dimensions,
        runs=_runs(runs),
        sections=[*comparison_sections(base, comparisons, every_look=True)],
        models=models,
        rows=grid.names,
        turns=TURNS,
    )


def _outcome(look: Look | None) -> str:
    return f"{_points(look)} points solved" if look is not None else "nothing graded in both"


def _points(look: Look) -> str:
    return f"{(look.new - look.base) * 100:+.1f}"


def _plots(pairing: Pairing) -> Iterator[Plot]:
    """Changes by test, where there are several, and by those of their ids that changed."""
    tests = changed_tests(pairing, by_id=False)
    ids = [one for one in changed_tests(pairing, by_id=True) if one[1].n_gained + one[1].n_lost]
    for key, word, looks in (("tests", "test", tests[1:] and tests), ("ids", "id", ids)):
        bounds = [
            100 * abs(one or 0)
            for _, look in looks
            for one in (look.low, look.high, look.new - look.base)
        ]
        scale = Scale(-max(bounds, default=1) or -1, max(bounds, default=1) or 1)
        rows = [_change(word, one_line(name), look, scale) for name, look in looks[:_MOST_ROWS]]
        n_more = len(looks) - len(rows)
        note = f" {counted(n_more, 'more row')} changed less surely." if n_more else ""
        plot = plot_of(
            key,
            f"Changes by {word}",
            "Change of the solved rate in percentage points with its interval at 95 %, all models"
            f" together, the most certain first; each holds for its row alone.{note}",
            "results: outcome of both runs",
            rows,
        )
        if plot is not None:
            yield plot


def _change(word: str, name: str, look: Look, scale: Scale) -> dict[str, str]:
    low, high = (None if one is None else 100 * one for one in (look.low, look.high))
    known = low is not None and high is not None
    turns = f"{look.n_gained} solved now, not before; {look.n_lost} solved before, not now"
    drawn = interval(scale, 100 * (look.new - look.base), low, high, f"{name}: {turns}")
    return {
        word: name,
        axis("points", scale, "{:+g}".format): drawn,
        "change": _points(look),
        "95 % interval": f"{low:+.0f} to {high:+.0f}" if known else NONE,
        "n": f"{look.n:,}",
        "baseline": percent(look.base),
        "new": percent(look.new),
    }


def _tiles_of_answers(every: ChangedDimension, flips: Sequence[Flip]) -> Iterator[Tile]:
    look = every.looks[0][0]
    if look is not None:
        interval = "unknown"
        if look.low is not None and look.high is not None:
            interval = f"{look.low * 100:+.1f} to {look.high * 100:+.1f}"
        yield Tile(
            "solved",
            f"{_points(look)} points",
            f"{percent(look.base)} → {percent(look.new)}; interval {interval}; n = {look.n:,}",
            "results: outcome of both runs",
        )
        for turn, n in ((LOST, look.n_lost), (GAINED, look.n_gained)):
            yield Tile(turn, f"{n:,}", f"of {look.n:,} graded in both", "results: outcome")
    answers = {TURNS.index(LOST), TURNS.index(GAINED)}
    n_apart = sum(flip.turn not in answers for flip in flips)
    note = "infra, error or skipped in the other"
    yield Tile("graded in one run only", f"{n_apart:,}", note, "results: outcome")


def _tiles_of_speed(found: Comparison) -> Iterator[Tile]:
    held_up = found.pairing.base.summary.client_bound or found.pairing.new.summary.client_bound
    for metric in ("throughput", "service"):
        figure = found.figures.get(metric)
        if figure is not None and figure.interval is not None:
            interval = interval_text(metric, *figure.interval.known, "relative")
            yield Tile(
                metric,
                figure_text(metric, figure.value, "relative"),
                f"{interval}{'; undecided: the client itself was the limit' if held_up else ''}",
                "results: started_at, ended_at, service_s of both runs",
            )


def _runs(runs: Sequence[MeasuredRun]) -> Section:
    """Each run, as it says itself."""
    rows = []
    for number, run in enumerate(runs, start=1):
        statistics = run.summary.statistics
        row = {
            "": str(number),
            "run": run.run_id,
            "started, UTC": f"{run.manifest.started_at:%Y-%m-%d %H:%M}",
            "mode": run.summary.mode,
            "graded": f"{statistics.n_graded:,}",
            "solved": percent(statistics.counts["solved"] / statistics.n_graded),
            "speed": or_dash(statistics.throughput, rate),
            "time": or_dash(statistics.makespan_s, duration),
            "efficiency": or_dash(run.summary.efficiency, percent),
            "cost": _cost(run),
        }
        rows.append(row)
    header, cells = columns_of(rows)
    return Section("Runs", header, tuple(cells), n_names=4)


def _cost(run: MeasuredRun) -> str:
    """`1.25 USD`; at least so much where some requests' cost is not known."""
    cost = run.summary.cost
    if cost is None:
        return NONE
    return f"{'at least ' if cost.n_unknown else ''}{money(cost.total, cost.currency)}"
