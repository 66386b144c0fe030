"""The page of a comparison: the verdict, changes, the runs in turn, and cases that flipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.compare.changes import ChangedDimension, Grid, changed_dimensions, grid_of
from pytest_ultrapar.compare.drift import drift
from pytest_ultrapar.compare.figures import NONE, figure_text, interval_text
from pytest_ultrapar.compare.flips import GAINED, LOST, TURNS, read_flips
from pytest_ultrapar.compare.plots import cost_text, drift_plots, forest_plot
from pytest_ultrapar.compare.report import comparison_sections, differences, every_look
from pytest_ultrapar.pages.figures import labels
from pytest_ultrapar.pages.frame import Tile, embedded, framed
from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.report.text import duration, percent, rate, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_ultrapar.analysis.measured_run import MeasuredRun
    from pytest_ultrapar.compare.comparison import Comparison
    from pytest_ultrapar.compare.drift import Drift
    from pytest_ultrapar.compare.flips import Flip


class Beside(NamedTuple):
    """The newest run beside an earlier one, as the page shows it.

    Attributes:
        earlier: How to call the earlier run, with its id.
        cautions: What may make the change one of something else, a sentence each.
        verdict: As `ultrapar compare` prints it.
    """

    earlier: str
    cautions: list[str]
    verdict: list[str]
    tiles: list[Tile]
    dimensions: list[ChangedDimension]


def render(
    base: MeasuredRun, comparisons: Sequence[Comparison], before: Comparison | None
) -> bytes:
    """The page as HTML in UTF-8.

    Args:
        base: The baseline, the first of the series.
        comparisons: Each later run beside it, in turn; the last is the newest.
        before: The newest beside the one before; None where that is the baseline.

    Raises:
        ConfigError: A table of a run cannot be read.
    """
    newest = comparisons[-1].pairing.new
    shown = [comparisons[-1], *([before] if before is not None else [])]
    pairings = [one.pairing for one in shown]
    grid = grid_of(pairings)
    flips = read_flips(pairings, grid)
    series = drift(base, comparisons)
    calls = ["the first run, ", "the run before, "] if before is not None else [""]
    named = [
        _beside(f"{call}{one.pairing.base.run_id}", one, grid, _apart(number, flips.lines))
        for number, (call, one) in enumerate(zip(calls, shown, strict=True))
    ]
    plots = [
        *(
            forest_plot(f"forest-{number}", grid.names, one.dimensions, one.earlier)
            for number, one in enumerate(named)
        ),
        *(drift_plots(series) if before is not None else ()),
    ]
    drawn = [plot for plot in plots if plot is not None]
    sections = list(comparison_sections(base, comparisons, every_look))
    if before is not None:
        sections += comparison_sections(before.pairing.base, [before], every_look)
    runs = [base, *(one.pairing.new for one in comparisons)]
    models = labels(grid.models)
    data = {
        "flips": flips.lines,
        "models": models,
        "turns": TURNS,
        "against": [visible(one.base.run_id) for one in pairings],
        "dimensions": [{"name": one.name, "values": one.values} for one in named[0].dimensions],
        "plots": {plot.key: plot.spec for plot in drawn},
    }
    return framed(
        "compare/page.html.j2",
        "compare/page.js",
        [embedded(data)],
        parts=flips.parts,
        n_left_out=flips.n_left_out,
        state="",
        newest=newest,
        base=base,
        simulated=SIMULATED if any(run.manifest.simulated for run in runs) else "",
        named=named,
        runs=_runs(series),
        plots=drawn,
        sections=[_visible(one) for one in sections],
        models=models,
        rows=grid.names,
        turns=TURNS,
    )


def _apart(against: int, flips: Sequence[Flip]) -> int:
    """Cases that only one run of a pair graded."""
    answers = {TURNS.index(LOST), TURNS.index(GAINED)}
    return sum(flip.against == against and flip.turn not in answers for flip in flips)


def _beside(earlier: str, found: Comparison, grid: Grid, n_apart: int) -> Beside:
    pairing = found.pairing
    (verdict, *_) = comparison_sections(pairing.base, [found])
    dimensions = changed_dimensions(pairing, grid)
    return Beside(
        visible(earlier),
        [visible(each) for each in differences(pairing)],
        [visible(note) for note in verdict.notes],
        [*_tiles_of_answers(dimensions[-1], n_apart), *_tiles_of_speed(found)],
        dimensions,
    )


def _tiles_of_answers(every: ChangedDimension, n_apart: int) -> Iterator[Tile]:
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


def _runs(series: Drift) -> Section:
    rows = tuple(
        (
            str(run.number),
            visible(run.run_id),
            run.started,
            run.mode,
            f"{run.n_graded:,}",
            _or_none(run.per_s, rate),
            _or_none(run.makespan_s, duration),
            _or_none(run.efficiency, percent),
            cost_text(run),
        )
        for run in series.runs
    )
    header = ("", "run", "started, UTC", "mode", "graded", "speed", "time", "efficiency", "cost")
    return Section("Runs", header, rows, n_names=4)


def _visible(section: Section) -> Section:
    """The section as a terminal shows it: names of models and of data are foreign text."""
    return Section(
        visible(section.title),
        tuple(map(visible, section.header)),
        tuple(tuple(map(visible, row)) for row in section.rows),
        section.n_names,
        tuple(map(visible, section.notes)),
    )


def _or_none(value: float | None, shown: Callable[[float], str]) -> str:
    return NONE if value is None else shown(value)
