"""The plots of a comparison as Vega-Lite specifications, with their figures as tables; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.analysis.equivalence import ALL_MODELS
from pytest_ultrapar.compare.figures import NONE, figure_text, interval_text
from pytest_ultrapar.pages.plots import SCHEMA, Plot
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.text import duration, percent, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.equivalence import Look
    from pytest_ultrapar.compare.changes import ChangedDimension
    from pytest_ultrapar.compare.drift import Drift, RunLine

MOST_ROWS = 60
"""Of a forest plot: beyond that nobody sees which row is which."""
MOST_LINES = 8
"""As many as there are colours that everybody tells apart."""
_SPREAD = 0.3
"""Of the models of one run, as part of the way to the next."""
_EVERY_MODEL = "all models"
_RATE = "solved_rate"


def forest_plot(
    key: str, names: Sequence[str], dimensions: Sequence[ChangedDimension], earlier: str
) -> Plot | None:
    """The change of the solved rate of each model and each value; None where none has an interval.

    Args:
        key: Its id on the page.
        names: Of the rows of each dimension.
        dimensions: As `changed_dimensions` has them.
        earlier: How to call the earlier run.
    """
    every = [(name, look) for name, look in _rows(names, dimensions) if look.low is not None]
    if not every:
        return None
    rows = every[:MOST_ROWS]
    values = [
        {
            "of": name,
            "change": round((look.new - look.base) * 100, 3),
            "low": round((look.low or 0) * 100, 3),
            "high": round((look.high or 0) * 100, 3),
        }
        for name, look in rows
    ]
    labels: dict[str, Any] = {
        "field": "of",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"labelLimit": 180},
    }
    title = "change of the solved rate, percentage points"
    colour = {
        "condition": [
            {"test": "datum.low > 0", "value": "#2a9d8f"},
            {"test": "datum.high < 0", "value": "#d1495b"},
        ],
        "value": "#8a929b",
    }
    spec = {
        "$schema": SCHEMA,
        "width": "container",
        "height": {"step": 20},
        "data": {"values": values},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {
                    "y": labels,
                    "x": {"field": "low", "type": "quantitative", "title": title},
                    "x2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {
                    "y": labels,
                    "x": {"field": "change", "type": "quantitative"},
                    "color": colour,
                },
            },
            {
                "data": {"values": [{"none": 0}]},
                "mark": {"type": "rule", "strokeDash": [4, 4], "color": "#8a929b"},
                "encoding": {"x": {"field": "none", "type": "quantitative"}},
            },
        ],
    }
    more = (
        f" {len(every) - len(rows)} more stand in the tables of models."
        if every[MOST_ROWS:]
        else ""
    )
    return Plot(
        key,
        f"Changes against {earlier}",
        "Change of the solved rate on the cases that both runs graded, with its 95 % interval; "
        "coloured where the interval leaves 0 out. Each interval holds for its row alone; the "
        f"verdict holds for all.{more}",
        "results: outcome of both runs",
        spec,
        ("cases", "n", "baseline", "new", "change", "95 % interval"),
        [_forest_row(name, look) for name, look in rows],
    )


def _rows(
    names: Sequence[str], dimensions: Sequence[ChangedDimension]
) -> Iterator[tuple[str, Look]]:
    """Models first, then the values of each parameter, of all models together."""
    for name, (look,) in zip(names, dimensions[-1].looks, strict=True):
        if look is not None:
            yield name, look
    for one in dimensions[:-1]:
        for value, found in zip(one.values, one.looks[0], strict=True):
            if found is not None:
                yield f"{one.name} = {value}", found


def _forest_row(name: str, look: Look) -> tuple[str, ...]:
    return (
        name,
        f"{look.n:,}",
        figure_text(_RATE, look.base),
        figure_text(_RATE, look.new),
        figure_text(_RATE, look.new - look.base, "difference"),
        interval_text(_RATE, look.low, look.high, "difference"),
    )


def drift_plots(found: Drift) -> Iterator[Plot]:
    """The solved rate of each model over the runs, their times and their costs, as far as known."""
    if found.rates:
        yield _rates_plot(found)
    if any(run.makespan_s is not None for run in found.runs):
        yield _bars_plot(
            "times",
            "Time of each run",
            "seconds",
            "summary.json: statistics.makespan_s",
            [(run, run.makespan_s, duration(run.makespan_s or 0)) for run in found.runs],
        )
    currencies = {run.currency for run in found.runs if run.cost is not None}
    if len(currencies) == 1:
        (currency,) = currencies
        yield _bars_plot(
            "costs",
            "Cost of each run",
            currency,
            "summary.json: cost.total",
            [(run, run.cost, cost_text(run)) for run in found.runs],
        )


def cost_text(run: RunLine) -> str:
    """`1.25 USD`; at least so much where some requests' cost is not known."""
    if run.cost is None:
        return NONE
    least = "at least " if run.n_unknown else ""
    return f"{least}{money(run.cost, run.currency)}"


def _rates_plot(found: Drift) -> Plot:
    moved: dict[str, list[float]] = {}
    for point in found.rates:
        moved.setdefault(point.model, []).append(point.value)
    # All models together, then those that moved most.
    models = sorted(moved, key=lambda one: (one != ALL_MODELS, min(moved[one]) - max(moved[one])))
    shown = models[:MOST_LINES]
    aside = {model: (n + 1) / (len(shown) + 1) - 0.5 for n, model in enumerate(shown)}
    values = [
        {
            # Beside each other: intervals of models with the same rate would hide one another.
            "run": round(point.number + aside[point.model] * _SPREAD, 4),
            "model": point.model or _EVERY_MODEL,
            "rate": round(point.value, 5),
            "low": point.low,
            "high": point.high,
        }
        for point in found.rates
        if point.model in aside
    ]
    n_runs = len(found.runs)
    x = {
        "field": "run",
        "type": "quantitative",
        "title": "run",
        "axis": {"values": [run.number for run in found.runs], "format": "d", "grid": False},
        "scale": {"domain": [0.6, n_runs + 0.4], "nice": False, "zero": False},
    }
    share = {"type": "quantitative", "title": "solved", "axis": {"format": "%"}}
    colour = {
        "field": "model",
        "type": "nominal",
        "sort": None,
        "title": None,
        "legend": {"orient": "bottom", "columns": 2, "labelLimit": 220},
    }
    spec = {
        "$schema": SCHEMA,
        "width": "container",
        "height": 280,
        "data": {"values": values},
        "encoding": {"x": x, "color": colour},
        "layer": [
            {
                "mark": {"type": "rule", "opacity": 0.6},
                "encoding": {"y": {"field": "low", **share}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line"}, "encoding": {"y": {"field": "rate", **share}}},
            {
                "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
                "encoding": {"y": {"field": "rate", **share}},
            },
        ],
    }
    few = f" The {MOST_LINES} that moved most are drawn." if len(models) > MOST_LINES else ""
    return Plot(
        "rates",
        "Solved rate over the runs",
        f"Share of graded cases that were solved, with its 95 % interval, of the {found.n_common:,}"
        f" cases that all runs have.{few}",
        "results: outcome, model of each run",
        spec,
        ("run", "model", "cases", "solved", "95 % interval"),
        [
            (
                str(point.number),
                point.model or _EVERY_MODEL,
                f"{point.n:,}",
                percent(point.value),
                interval_text(_RATE, point.low, point.high, "absolute"),
            )
            for point in found.rates
        ],
    )


def _bars_plot(
    key: str,
    title: str,
    unit: str,
    source: str,
    bars: Sequence[tuple[RunLine, float | None, str]],
) -> Plot:
    known = [(run, value, text) for run, value, text in bars if value is not None]
    spec = {
        "$schema": SCHEMA,
        "width": "container",
        "height": 160,
        "data": {"values": [{"run": str(run.number), unit: value} for run, value, _ in known]},
        "mark": {"type": "bar", "cornerRadiusEnd": 3, "color": "#2a9d8f", "size": 28},
        "encoding": {
            "x": {
                "field": "run",
                "type": "nominal",
                "sort": None,
                "axis": {"labelAngle": 0},
            },
            "y": {"field": unit, "type": "quantitative"},
        },
    }
    return Plot(
        key,
        title,
        "Of the whole run, its own cases and all.",
        source,
        spec,
        ("run", "id", unit),
        [(str(run.number), visible(run.run_id), text) for run, _, text in known],
    )
