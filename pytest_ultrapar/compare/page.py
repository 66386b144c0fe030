"""The page of a comparison: the verdict, changes, the runs in turn, and cases that flipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.compare.changes import ChangedDimension, changed_dimensions
from pytest_ultrapar.compare.drift import drift
from pytest_ultrapar.compare.figures import NONE, figure_text, interval_text
from pytest_ultrapar.compare.flips import GAINED, LOST, TURNS, read_flips
from pytest_ultrapar.compare.plots import cost_text, drift_plots, forest_plot
from pytest_ultrapar.compare.report import comparison_sections, differences, every_look
from pytest_ultrapar.pages.frame import Tile, framed
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
        against: Id of the earlier run.
        earlier: How to call it, with its id.
        cautions: What may make the change one of something else, a sentence each.
        verdict: As `ultrapar compare` prints it.
    """

    against: str
    earlier: str
    cautions: list[str]
    verdict: list[str]
    tiles: list[Tile]
    dimensions: list[ChangedDimension]


def render(base: MeasuredRun, comparisons: Sequence[Comparison], before: Comparison | None) -> str:
    """The page as HTML.

    Args:
        base: The baseline, the first of the series.
        comparisons: Each later run beside it, in turn; the last is the newest.
        before: The newest beside the one before; None where that is the baseline.

    Raises:
        ConfigError: A table of a run cannot be read.
    """
    newest = comparisons[-1].pairing.new
    shown = [comparisons[-1], *([before] if before is not None else [])]
    flips = read_flips([one.pairing for one in shown])
    series = drift(base, comparisons)
    calls = ["the first run, ", "the run before, "] if before is not None else [""]
    named = [_beside(one, flips.lines, call) for one, call in zip(shown, calls, strict=True)]
    plots = [
        *(
            forest_plot(f"forest-{number}", one.dimensions, one.earlier)
            for number, one in enumerate(named)
        ),
        *(drift_plots(series) if before is not None else ()),
    ]
    drawn = [plot for plot in plots if plot is not None]
    sections = list(comparison_sections(base, comparisons, every_look))
    if before is not None:
        sections += comparison_sections(before.pairing.base, [before], every_look)
    runs = [base, *(one.pairing.new for one in comparisons)]
    data = {"flips": flips.lines, "plots": {plot.key: plot.spec for plot in drawn}}
    return framed(
        "compare/page.html.j2",
        "compare/page.js",
        data,
        parts=flips.parts,
        n_left_out=flips.n_left_out,
        newest=newest,
        base=base,
        simulated=SIMULATED if any(run.manifest.simulated for run in runs) else "",
        named=named,
        runs=_runs(series),
        plots=drawn,
        sections=[_visible(one) for one in sections],
        models=sorted({flip.model for flip in flips.lines}),
        turns=[turn for turn in TURNS if any(flip.turn == turn for flip in flips.lines)],
    )


def _beside(found: Comparison, flips: Sequence[Flip], call: str) -> Beside:
    pairing = found.pairing
    (verdict, *_) = comparison_sections(pairing.base, [found])
    dimensions = changed_dimensions(pairing)
    own = [flip for flip in flips if flip.against == pairing.base.run_id]
    return Beside(
        pairing.base.run_id,
        f"{call}{pairing.base.run_id}",
        [visible(each) for each in differences(pairing)],
        [visible(note) for note in verdict.notes],
        [*_tiles_of_answers(dimensions, own), *_tiles_of_speed(found)],
        dimensions,
    )


def _tiles_of_answers(
    dimensions: Sequence[ChangedDimension], flips: Sequence[Flip]
) -> Iterator[Tile]:
    all_cases = dimensions[-1]
    look = all_cases.look(all_cases.models[0], "")
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
    n_apart = sum(flip.turn not in {LOST, GAINED} for flip in flips)
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
