"""The plots of a page as Vega-Lite specifications, with their figures as tables; pure data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.pages.figures import QUANTILES
from pytest_ultrapar.report.summary import PARTS
from pytest_ultrapar.report.text import columns_of, duration, percent

if TYPE_CHECKING:
    from pytest_ultrapar.analysis.attribution import Attribution
    from pytest_ultrapar.report.pages.figures import Curve
    from pytest_ultrapar.report.pages.lanes import LaneUse, LimitLine, LimitUse
    from pytest_ultrapar.report.pages.models import ModelCost, PassAt

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The name of the format; nothing is fetched from there."""
_ROW_HEIGHT = 18


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


def _spec(height: int | dict[str, int], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"$schema": _SCHEMA, "width": "container", "height": height, **more}


def _number(field: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"field": field, "type": "quantitative", **more}


def _names(field: str, most_wide: int = 260) -> dict[str, Any]:
    axis = {"labelLimit": most_wide}
    return {"field": field, "type": "nominal", "title": None, "axis": axis}


def lanes_plot(lanes: Sequence[LaneUse]) -> Plot | None:
    """Lanes over time; None where nothing was sent."""
    if not lanes:
        return None
    in_seats = all(lane.seats for lane in lanes)
    used = []
    for one in lanes:
        most = one.seats if in_seats and one.seats else 1
        used.append((one.lane, one.slice_s, [n / most for n in one.in_flight]))
    spec = _heat("lane", used, "share of seats" if in_seats else "in flight")
    axis = spec["layer"][0]["encoding"]["y"]
    spec["layer"] += [*_marks(lanes, axis)]
    header, rows = columns_of(
        [
            {
                "lane": one.lane,
                "requests": f"{one.n:,}",
                "seats": str(one.seats or "-"),
                "most in flight": f"{max(one.in_flight):.1f}",
                "refused": f"{len(one.refused_at_s):,}",
                "pauses": f"{one.pauses:,}",
                "paused for": duration(one.paused_s),
                "breaker opened": f"{one.n_opened:,}",
            }
            for one in lanes
        ]
    )
    return Plot(
        "lanes",
        "Lanes over time",
        "How many requests each lane had in flight. Red marks are refusals; the line below is grey "
        "while a lane paused, and red while its breaker was open.",
        "attempts: t_send_s, t_end_s, outcome; pauses: t_s, t_end_s, cause; "
        "manifest.json: pool_limits, pool_lanes",
        spec,
        header,
        rows,
    )


def time_plot(found: Attribution | None, waited: str = "") -> Plot | None:
    """Where the time of a run went; None where that is not known.

    Args:
        found: Its parts.
        waited: What requests waited for, a sentence without its point; perhaps empty.
    """
    if found is None:
        return None
    said = f" {waited[0].upper()}{waited[1:]}." if waited else ""
    parts = [
        (part, getattr(found.run, name))
        for name, part in {"used_s": "bound", **PARTS}.items()
        if getattr(found.run, name) >= found.makespan_s / 1000
    ]
    bound = {"test": "datum.part === 'bound'", "value": "#2a9d8f"}
    spec = _spec(
        {"step": 26},
        data={"values": [{"part": part, "seconds": round(s, 3)} for part, s in parts]},
        mark={"type": "bar", "cornerRadiusEnd": 3},
        encoding={
            "y": {**_names("part", 200), "sort": None},
            "x": _number("seconds"),
            "color": {"condition": bound, "value": "#e9a03b"},
        },
    )
    return Plot(
        "time",
        "Where the time went",
        f"No schedule could have saved the bound, with answers as slow as these.{said}",
        "summary.json: attribution; manifest.json: lanes",
        spec,
        ("part", "time", "share"),
        [(part, duration(s), f"{s / found.makespan_s:.1%}") for part, s in parts],
    )


def limit_uses_plot(uses: Sequence[LimitUse]) -> Plot | None:
    """How full limits were over time; None where there were none."""
    if not uses:
        return None
    used = [(one.limit, one.slice_s, one.shares) for one in uses]
    return Plot(
        "limit-uses",
        "Limits over time",
        "How much of each limit was used; of limits that lanes share by all of them.",
        "attempts: t_send_s, t_end_s, tokens; manifest.json: pool_limits, pool_lanes",
        _heat("limit", used, "share of the limit"),
        ("limit", "on the mean", "at most"),
        [
            (one.limit, percent(sum(one.shares) / len(one.shares)), percent(max(one.shares)))
            for one in uses
        ],
    )


def _heat(
    row: str, used: Iterable[tuple[str, float, Sequence[float]]], title: str
) -> dict[str, Any]:
    """Rows over time: the name of each, the seconds of a slice, and what was used in its slices."""
    slices = [
        {
            row: name,
            "from": round(number * slice_s, 3),
            "to": round((number + 1) * slice_s, 3),
            "used": round(n, 4),
        }
        for name, slice_s, values in used
        for number, n in enumerate(values)
        if n
    ]
    colour = _number(
        "used",
        title=title,
        scale={"scheme": "viridis", "domainMin": 0},
        legend={"orient": "bottom", "gradientLength": 160},
    )
    layer = {
        "data": {"values": slices},
        "mark": {"type": "rect"},
        "encoding": {
            "x": _number("from", title="seconds"),
            "x2": {"field": "to"},
            "y": _names(row),
            "color": colour,
        },
    }
    return _spec({"step": _ROW_HEIGHT}, layer=[layer])


def _marks(lanes: Sequence[LaneUse], axis: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Layers that mark when lanes paused, had their breaker open, and were refused."""
    for spans, said, colour in (
        ([one.pauses_at_s for one in lanes], "paused", "#9aa0a6"),
        ([one.opened_at_s for one in lanes], "breaker open", "#d1495b"),
    ):
        values = [
            {"lane": one.lane, "from": begin_s, "to": end_s, "what": said}
            for one, own in zip(lanes, spans, strict=True)
            for begin_s, end_s in own
        ]
        if values:
            yield {
                "data": {"values": values},
                "mark": {"type": "rule", "color": colour, "strokeWidth": 3, "yOffset": 7},
                "encoding": {
                    "x": _number("from"),
                    "x2": {"field": "to"},
                    "y": axis,
                    "tooltip": [{"field": name} for name in ("lane", "what", "from", "to")],
                },
            }
    refused = [{"lane": one.lane, "at": at_s} for one in lanes for at_s in one.refused_at_s]
    if refused:
        yield {
            "data": {"values": refused},
            "mark": {"type": "tick", "color": "#d1495b", "thickness": 2},
            "encoding": {"x": _number("at"), "y": axis},
        }


def limits_plot(limits: Sequence[LimitLine]) -> Plot | None:
    """Estimated limits over time; None where none was estimated."""
    if not limits:
        return None
    values = [
        {"limit": one.limit, "at": at_s, "allowed": n, "why": why}
        for one in limits
        for at_s, n, why in zip(one.at_s, one.workers, one.reasons, strict=True)
    ]
    spec = _spec(
        260,
        data={"values": values},
        mark={"type": "line", "interpolate": "step-after", "point": True},
        encoding={
            "x": _number("at", title="seconds"),
            "y": _number("allowed", title="allowed in flight"),
            "color": _colour_of("limit"),
        },
    )
    return Plot(
        "limits",
        "Estimated limits over time",
        "How many requests each limit allowed in flight; every point is a change.",
        "limits: t_s, workers, reason",
        spec,
        ("limit", "changes", "at first", "least", "most", "at last", "last reason"),
        [
            (
                one.limit,
                f"{len(one.workers):,}",
                f"{one.workers[0]:,}",
                f"{min(one.workers):,}",
                f"{max(one.workers):,}",
                f"{one.workers[-1]:,}",
                one.reasons[-1],
            )
            for one in limits
        ],
    )


def curves_plot(curves: Sequence[Curve]) -> Plot | None:
    """How long cases took; None where none was answered."""
    return _distribution(
        curves,
        "cases",
        key="curves",
        title="How long answers took",
        note="Share of graded cases whose answers took at most so long, all of a case together,"
        " without what it waited.",
        source="results: service_s",
    )


def first_tokens_plot(curves: Sequence[Curve]) -> Plot | None:
    """How long first tokens took; None where nothing was streamed."""
    return _distribution(
        curves,
        "answers",
        key="first-tokens",
        title="How long first tokens took",
        note="Share of streamed answers whose first token came at most so long after the request.",
        source="attempts: t_send_s, t_first_token_s",
    )


def _distribution(
    curves: Sequence[Curve], counted: str, *, key: str, title: str, note: str, source: str
) -> Plot | None:
    if not curves:
        return None
    values = [
        {"model": one.model, "seconds": round(s, 4), "share": k / QUANTILES}
        for one in curves
        for k, s in enumerate(one.seconds)
    ]
    spec = _spec(
        260,
        data={"values": values},
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        encoding={
            "x": _number("seconds"),
            "y": _number("share", title=f"share of {counted}", axis={"format": "%"}),
            "color": _colour_of("model"),
        },
    )
    return Plot(
        key,
        title,
        note,
        source,
        spec,
        ("model", counted, "p50", "p95", "longest"),
        [
            (
                one.model,
                f"{one.n:,}",
                *(duration(s) for s in (one.seconds[QUANTILES // 2], one.p95_s, one.seconds[-1])),
            )
            for one in curves
        ],
    )


def costs_plot(costs: Sequence[ModelCost], currency: str) -> Plot | None:
    """What a solved case cost by model; None where no cost is known."""
    if not costs:
        return None
    values = [
        {"model": one.model, "cost": one.per_solved} for one in costs if one.per_solved is not None
    ]
    spec = _spec(
        {"step": 26},
        data={"values": values},
        mark={"type": "bar", "cornerRadiusEnd": 3, "color": "#0072b2"},
        encoding={
            "y": _names("model"),
            "x": _number("cost", title=f"{currency} for each solved case"),
        },
    )
    return Plot(
        "costs",
        "What a solved case cost",
        "Of each model, the cost of all its cases by the number of those that were solved; without"
        " roles and without requests that got no answer.",
        "results: cost, outcome, model",
        spec,
        ("model", "cost", "solved", "for each solved case", "cases of unknown cost"),
        [
            (
                one.model,
                money(one.cost, currency),
                f"{one.n_solved:,}",
                "-" if one.per_solved is None else money(one.per_solved, currency),
                f"{one.n_unknown:,}",
            )
            for one in costs
        ],
    )


def passes_plot(passes: Sequence[PassAt]) -> Plot | None:
    """pass@k by model; None where cells have no repetitions."""
    if not passes:
        return None
    x = _number("k", title="k", axis={"tickMinStep": 1}, scale={"zero": False, "nice": False})
    interval = {
        "transform": [{"filter": "datum.low !== null"}],
        "mark": {"type": "rule", "opacity": 0.5},
        "encoding": {"y": _number("low"), "y2": {"field": "high"}},
    }
    means = {
        "mark": {"type": "line", "point": True},
        "encoding": {"y": _number("value", title="pass@k", axis={"format": "%"})},
    }
    spec = _spec(
        260,
        data={"values": [msgspec.to_builtins(one) for one in passes]},
        encoding={"x": x, "color": _colour_of("model")},
        layer=[interval, means],
    )
    return Plot(
        "passes",
        "Solved in one of k repetitions",
        "pass@k: the chance that of k repetitions of a cell at least one is solved, the mean over"
        " cells; with its interval at 95 %. pass@1 counts each cell once and the solved share above"
        " each case, so the two and their intervals may differ a little.",
        "results: outcome, model, repeat",
        spec,
        ("model", "k", "cells", "pass@k", "95 % interval"),
        [
            (
                one.model,
                str(one.k),
                f"{one.n:,}",
                percent(one.value),
                "-"
                if one.low is None or one.high is None
                else f"{percent(one.low)} to {percent(one.high)}",
            )
            for one in passes
        ],
    )


def _colour_of(field: str) -> dict[str, Any]:
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "legend": {"orient": "bottom", "columns": 3, "labelLimit": 260},
    }
