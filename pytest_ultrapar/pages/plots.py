"""The plots of a page as Vega-Lite specifications, with their figures as tables; pure data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.pages.figures import QUANTILES
from pytest_ultrapar.report.text import duration

if TYPE_CHECKING:
    from pytest_ultrapar.analysis.attribution import Attribution
    from pytest_ultrapar.pages.figures import Curve
    from pytest_ultrapar.pages.lanes import LaneUse

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The name of the format; nothing is fetched from there."""
_ROW_HEIGHT = 18
_PARTS = {
    "used_s": "bound",
    "rate_wait_s": "waiting for rates",
    "seat_wait_s": "waiting for seats",
    "backoff_s": "back-off",
    "rules_s": "rules of mode or policy",
    "client_s": "client",
    "startup_s": "start-up",
    "tail_s": "uneven end",
    "misrouted_s": "other lanes than the best",
    "other_s": "other",
}


class Plot(msgspec.Struct, frozen=True):
    """One plot.

    Attributes:
        key: Its id on the page.
        note: What it shows, for who cannot see it, too.
        source: Which table its numbers come from.
        header: Of the same figures as a table.
    """

    key: str
    title: str
    note: str
    source: str
    spec: dict[str, Any]
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def lanes_plot(lanes: Sequence[LaneUse]) -> Plot | None:
    """Lanes over time; None where nothing was sent."""
    if not lanes:
        return None
    slices = [
        {
            "lane": lane.lane,
            "from": round(number * lane.slice_s, 3),
            "to": round((number + 1) * lane.slice_s, 3),
            "in flight": n,
            "share": round(n / lane.seats, 4) if lane.seats else None,
        }
        for lane in lanes
        for number, n in enumerate(lane.in_flight)
        if n
    ]
    refused = [{"lane": one.lane, "at": at_s} for one in lanes for at_s in one.refused_at_s]
    use = "share" if all(lane.seats for lane in lanes) else "in flight"
    lane_axis = {"field": "lane", "type": "nominal", "title": None, "axis": {"labelLimit": 260}}
    spec = {
        "$schema": SCHEMA,
        "width": "container",
        "height": {"step": _ROW_HEIGHT},
        "layer": [
            {
                "data": {"values": slices},
                "mark": {"type": "rect"},
                "encoding": {
                    "x": {"field": "from", "type": "quantitative", "title": "seconds"},
                    "x2": {"field": "to"},
                    "y": lane_axis,
                    "color": {
                        "field": use,
                        "type": "quantitative",
                        "title": "share of seats" if use == "share" else "in flight",
                        "scale": {"scheme": "viridis", "domainMin": 0},
                        "legend": {"orient": "bottom", "gradientLength": 160},
                    },
                },
            },
            {
                "data": {"values": refused},
                "mark": {"type": "tick", "color": "#d1495b", "thickness": 2},
                "encoding": {"x": {"field": "at", "type": "quantitative"}, "y": lane_axis},
            },
        ],
    }
    rows = [
        (
            one.lane,
            f"{one.n:,}",
            str(one.seats or "-"),
            f"{max(one.in_flight):.1f}",
            f"{len(one.refused_at_s):,}",
        )
        for one in lanes
    ]
    return Plot(
        "lanes",
        "Lanes over time",
        "How many requests each lane had in flight; red marks are refusals.",
        "attempts: t_send_s, t_end_s, outcome",
        spec,
        ("lane", "requests", "seats", "most in flight", "refused"),
        rows,
    )


def time_plot(found: Attribution | None) -> Plot | None:
    """Where the time of a run went; None where that is not known."""
    if found is None:
        return None
    parts = [
        (said, getattr(found.run, name))
        for name, said in _PARTS.items()
        if getattr(found.run, name) >= found.makespan_s / 1000
    ]
    values = [{"part": said, "seconds": round(seconds, 3)} for said, seconds in parts]
    spec = {
        "$schema": SCHEMA,
        "width": "container",
        "height": {"step": 26},
        "data": {"values": values},
        "mark": {"type": "bar", "cornerRadiusEnd": 3},
        "encoding": {
            "y": {
                "field": "part",
                "type": "nominal",
                "sort": None,
                "title": None,
                "axis": {"labelLimit": 200},
            },
            "x": {"field": "seconds", "type": "quantitative"},
            "color": {
                "condition": {"test": "datum.part === 'bound'", "value": "#2a9d8f"},
                "value": "#e9a03b",
            },
        },
    }
    return Plot(
        "time",
        "Where the time went",
        "The bound is the time that no schedule could have saved.",
        "summary.json: attribution",
        spec,
        ("part", "time", "share"),
        [(said, duration(s), f"{s / found.makespan_s:.1%}") for said, s in parts],
    )


def curves_plot(curves: Sequence[Curve]) -> Plot | None:
    """How long cases took; None where none was answered."""
    if not curves:
        return None
    values = [
        {"model": one.model, "seconds": round(s, 4), "share": k / QUANTILES}
        for one in curves
        for k, s in enumerate(one.seconds)
    ]
    spec = {
        "$schema": SCHEMA,
        "width": "container",
        "height": 260,
        "data": {"values": values},
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {
            "x": {"field": "seconds", "type": "quantitative"},
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "share of cases",
                "axis": {"format": "%"},
            },
            "color": {
                "field": "model",
                "type": "nominal",
                "title": None,
                "legend": {"orient": "bottom", "columns": 3, "labelLimit": 260},
            },
        },
    }
    return Plot(
        "curves",
        "How long answers took",
        "Share of graded cases whose answers took at most so long, all of a case together.",
        "results: service_s",
        spec,
        ("model", "cases", "p50", "p96", "longest"),
        [
            (
                one.model,
                f"{one.n:,}",
                *(duration(one.seconds[at * QUANTILES // 100]) for at in (50, 96, 100)),
            )
            for one in curves
        ],
    )
