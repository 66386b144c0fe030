"""The page of a comparison: the verdict, changes, the runs, and cases that flipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.compare.changes import changed_dimensions, grid_of
from pytest_ultrapar.compare.figures import NONE, figure_text, interval_text
from pytest_ultrapar.compare.flips import GAINED, LOST, TURNS, read_flips
from pytest_ultrapar.compare.report import comparison_sections, differences
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.pages.figures import labels
from pytest_ultrapar.report.pages.frame import Tile, embedded, framed
from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.report.text import columns_of, duration, or_dash, percent, rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.measured_run import MeasuredRun
    from pytest_ultrapar.compare.changes import ChangedDimension
    from pytest_ultrapar.compare.comparison import Comparison
    from pytest_ultrapar.compare.flips import Flip


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
        cautions=[*differences(pairing)],
        verdict=verdict.notes,
        tiles=[*_tiles_of_answers(dimensions[0], flips.lines), *_tiles_of_speed(shown)],
        dimensions=dimensions,
        runs=_runs(runs),
        sections=[*comparison_sections(base, comparisons, every_look=True)],
        models=models,
        rows=grid.names,
        turns=TURNS,
    )


def _tiles_of_answers(every: ChangedDimension, flips: Sequence[Flip]) -> Iterator[Tile]:
    look = every.looks[0][0]
    if look is not None:
        interval = "unknown"
        if look.low is not None and look.high is not None:
            interval = f"{look.low * 100:+.1f} to {look.high * 100:+.1f}"
        yield Tile(
            "solved",
            f"{(look.new - look.base) * 100:+.1f} points",
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
