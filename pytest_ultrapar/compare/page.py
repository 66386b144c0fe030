"""Make the HTML comparison: the verdict, the changes, the runs, and the cases that flipped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.equivalence import RATE
from pytest_ultrapar.compare.changes import changed_dimensions, changed_tests, grid_of
from pytest_ultrapar.compare.figures import figure_text, interval_text
from pytest_ultrapar.compare.flips import GAINED, LOST, TURNS, read_flips
from pytest_ultrapar.compare.report import comparison_sections, differences
from pytest_ultrapar.report.pages.figures import labels
from pytest_ultrapar.report.pages.page_template import Tile, embedded, framed
from pytest_ultrapar.report.pages.plots import plot_of
from pytest_ultrapar.report.pages.svg import Scale, axis, interval
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.report.text import listed, one_line, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.equivalence import ComparedFigure
    from pytest_ultrapar.analysis.measured_run import MeasuredRun
    from pytest_ultrapar.compare.comparison import Comparison
    from pytest_ultrapar.compare.flips import Flip
    from pytest_ultrapar.compare.pairing import Pairing
    from pytest_ultrapar.report.pages.plots import Plot

_MOST_ROWS = 20
"""The maximum number of rows in a plot of changes."""
_MARGINS = 2.5
"""The change that corresponds to one shade of colour, as a multiple of the margin below which
changes are ignored.
"""


def render(base: MeasuredRun, comparisons: Sequence[Comparison]) -> bytes:
    """Render the page as HTML in UTF-8.

    Args:
        base: The baseline.
        comparisons: One or more comparisons of other runs with the baseline. The page shows the
            changes and the flipped cases only for the last one.

    Raises:
        ConfigError: A table of a run cannot be read.
    """
    shown = comparisons[-1]
    pairing = shown.pairing
    grid = grid_of(pairing)
    flips = read_flips(pairing, grid)
    dimensions = changed_dimensions(pairing, grid)
    look = dimensions[0].looks[0][0]
    (verdict, *_) = comparison_sections(base, [shown])
    _, table, *sections = comparison_sections(base, comparisons, every_look=True)
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
        outcome=_outcome(look),
        seen=_seen,
        is_rate=look is None or look.figure == RATE,
        plots=[*_plots(pairing)],
        cautions=[*differences(pairing)],
        verdict=verdict.notes,
        tiles=[*_tiles(look, flips.lines)],
        dimensions=dimensions,
        runs=table,
        sections=sections,
        models=models,
        rows=grid.names,
        turns=TURNS,
    )


def _points(look: ComparedFigure) -> str:
    if look.figure != RATE:
        return figure_text(look.figure, look.new - look.base, "difference")
    return f"{(look.new - look.base) * 100:+.1f}"


def _outcome(look: ComparedFigure | None) -> str:
    """Return the headline. Runs graded only by scores may have no figure in common."""
    if look is None:
        return "no common figure"
    if look.figure == RATE:
        return f"solve rate {_points(look)} points"
    return f"{look.figure} {_points(look)}"


def _seen(look: ComparedFigure) -> tuple[str, str, bool, int]:
    """Return a table cell: the change, its interval, whether that excludes 0, and the colour."""
    sure = look.low is not None and look.high is not None and (look.low > 0 or look.high < 0)
    bounds = "" if look.low is None else _bounds(look, digits=0)
    # For a rate, one shade is five percentage points.
    steps = (look.new - look.base) / look.margin / _MARGINS if look.margin else 0.0
    return _points(look), bounds, sure, max(0, min(10, 5 + round(steps)))


def _plots(pairing: Pairing) -> Iterator[Plot]:
    """Yield plots of the changes: by test if there are several tests, by id if any id changed."""
    tests = changed_tests(pairing, by_id=False)
    ids = [one for one in changed_tests(pairing, by_id=True) if one[1].n_gained + one[1].n_lost]
    for word, looks in (("test", tests[1:] and tests), ("id", ids)):
        ends = [(look.new - look.base, look.low or 0.0, look.high or 0.0) for _, look in looks]
        most = 100 * max((abs(one) for own in ends for one in own), default=0.0) or 1.0
        rows = [_change(word, one_line(name), look, most) for name, look in looks[:_MOST_ROWS]]
        plot = plot_of(
            f"{word}s",
            f"Changes by {word}",
            "Change in the solve rate in percentage points, with its 95 % interval, over all "
            f"models. Each interval holds for its own row only. Rows shown: {len(rows)} of "
            f"{len(looks):,}.",
            rows,
        )
        yield from [plot] if plot is not None else []


def _change(word: str, name: str, look: ComparedFigure, most: float) -> dict[str, str]:
    scale = Scale(-most, most)
    low, high = (None if one is None else 100 * one for one in (look.low, look.high))
    tip = f"{name}: {look.n_gained} {GAINED}; {look.n_lost} {LOST}"
    return {
        word: name,
        axis("points", scale): interval(scale, 100 * (look.new - look.base), low, high, tip),
        "change": _points(look),
        "95 % interval": _bounds(look),
        "n": f"{look.n:,}",
        "baseline": percent(look.base),
        "new": percent(look.new),
    }


def _bounds(look: ComparedFigure, digits: int = 1) -> str:
    if look.low is None or look.high is None:
        return "unknown"
    if look.figure != RATE:
        return interval_text(look.figure, look.low, look.high, "difference")
    return f"{look.low * 100:+.{digits}f} to {look.high * 100:+.{digits}f}"


def _tiles(look: ComparedFigure | None, flips: Sequence[Flip]) -> Iterator[Tile]:
    if look is not None:
        is_rate = look.figure == RATE
        said = percent if is_rate else partial(figure_text, look.figure)
        yield Tile(
            "solved" if is_rate else look.figure,
            f"{_points(look)}{' points' if is_rate else ''}",
            f"{said(look.base)} → {said(look.new)}; interval {_bounds(look)}; n = {look.n:,}",
            f"results: {'outcome' if is_rate else look.figure} of both runs",
        )
        for turn, n in ((LOST, look.n_lost), (GAINED, look.n_gained)) if is_rate else ():
            yield Tile(turn, f"{n:,}", f"{look.n:,} graded in both", "results: outcome")
    n_apart = sum(TURNS[flip.turn] not in {LOST, GAINED} for flip in flips)
    note = "infra, error or skipped in the other run"
    yield Tile("graded in one run only", f"{n_apart:,}", note, "results: outcome")
