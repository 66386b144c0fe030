"""Make the plots of a page as data: tables in which one column contains drawings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from markupsafe import Markup

from pytest_ultrapar.pool.money import money
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.pages.lanes import N_SLICES
from pytest_ultrapar.report.pages.svg import Scale, axis, bar, interval, strip, up_to
from pytest_ultrapar.report.summary import PARTS
from pytest_ultrapar.report.text import columns_of, counted, duration, percent

if TYPE_CHECKING:
    from pytest_ultrapar.analysis.attribution import Attribution
    from pytest_ultrapar.report.pages.figures import Curve
    from pytest_ultrapar.report.pages.lanes import LaneUse, LimitLine, LimitUse
    from pytest_ultrapar.report.pages.models import ModelCost, PassAt

_SHARES = Scale(0.0, 1.0)
_NOTHING = frozenset({"", "0", "-", duration(0.0)})


class Plot(msgspec.Struct, frozen=True):
    """One plot.

    Attributes:
        key: The plot's id on the page.
        note: A description of the plot, also for screen readers.
        header: The header of the table. The header of the drawings' column contains their axis.
        rows: The rows of the table, with names, drawings (from `svg.py`) and their figures.
    """

    key: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def plot_of(key: str, title: str, note: str, rows: Sequence[dict[str, str]]) -> Plot | None:
    """Make a plot. Drop columns that are empty or zero in every row. None if there are no rows."""
    if not rows:
        return None
    names, *others = rows[0]
    told = [names, *(one for one in others if {row[one] for row in rows} - _NOTHING)]
    kept = [{name: row[name] for name in told} for row in rows]
    return Plot(key, title, note, *columns_of(kept))


def lanes_plot(lanes: Sequence[LaneUse]) -> Plot | None:
    """Plot the load of the lanes over time; None if there are no requests."""
    most = max((max(one.in_flight) for one in lanes), default=0.0) or 1.0
    in_seats = all(one.seats for one in lanes)
    rows = [
        {
            "lane": one.lane,
            axis("seconds", Scale(0.0, one.slice_s * N_SLICES)): strip(
                [n / (one.seats if in_seats and one.seats else most) for n in one.in_flight],
                [f"{n:.3g} in flight" for n in one.in_flight],
                f"{one.lane}{f', {one.seats} seats' if one.seats else ''}: ",
                one.slice_s,
                ticks=[min(N_SLICES - 1, int(at_s / one.slice_s)) for at_s in one.refused_at_s],
                spans=[
                    *(("paused", *span) for span in one.pauses_at_s),
                    *(("opened", *span) for span in one.opened_at_s),
                ],
            ),
            "requests": f"{one.n:,}",
            "seats": str(one.seats or "-"),
            "most in flight": f"{max(one.in_flight):.1f}",
            "refused": f"{len(one.refused_at_s):,}",
            "pauses": f"{one.pauses:,}",
            "paused for": duration(one.paused_s),
            "circuit breaker opened": f"{one.n_opened:,}",
        }
        for one in lanes
    ]
    return plot_of(
        "lanes",
        "Lanes over time",
        "Requests in flight on each lane, as a share of its seats or, if the seats of any lane are "
        "unknown, of the highest number on any lane. Red marks are refusals. The line below a lane "
        "is grey where the lane was paused, and red where its circuit breaker was open.",
        rows,
    )


def time_plot(found: Attribution | None, waited: str = "") -> Plot | None:
    """Plot the parts of a run's makespan; None if they are unknown.

    Args:
        found: The parts.
        waited: A sentence on the causes of waits, without a full stop; may be empty.
    """
    if found is None:
        return None
    said = f" {waited[0].upper()}{waited[1:]}." if waited else ""
    parts = {
        part: s
        for name, part in {"used_s": "bound", **PARTS}.items()
        if (s := getattr(found.run, name)) >= found.makespan_s / 1000
    }
    scale = up_to(parts.values())
    rows = [
        {
            "part": part,
            axis("seconds", scale): bar(
                scale, s, f"{part}: {duration(s)}", "bound" if part == "bound" else "over"
            ),
            "time": duration(s),
            "share": f"{s / found.makespan_s:.1%}",
        }
        for part, s in parts.items()
    ]
    return plot_of(
        "time",
        "Where the time went",
        f"With these response times, no schedule can be faster than the bound.{said}",
        rows,
    )


def limit_uses_plot(uses: Sequence[LimitUse]) -> Plot | None:
    """Plot the use of limits over time; None if there are no limits."""
    rows = [
        {
            "limit": one.limit,
            axis("seconds", Scale(0.0, one.slice_s * N_SLICES)): strip(
                one.shares, [f"{n:.0%}" for n in one.shares], f"{one.limit}: ", one.slice_s
            ),
            "mean": percent(sum(one.shares) / len(one.shares)),
            "highest": percent(max(one.shares)),
        }
        for one in uses
    ]
    return plot_of(
        "limit-uses",
        "Limits over time",
        "How much of each limit was used. If lanes share a limit, all their requests are included.",
        rows,
    )


def limits_plot(limits: Sequence[LimitLine], end_s: float = 0.0) -> Plot | None:
    """Plot estimated limits over time; None if there are no estimates.

    Args:
        limits: The estimated limits.
        end_s: When the run's last request ended, in seconds after the first one was sent.
    """
    slice_s = max([end_s, 1e-6, *(one.at_s[-1] for one in limits)]) / N_SLICES
    most = max((max(one.workers) for one in limits), default=1)
    rows = []
    for one in limits:
        known = [bisect_right(one.at_s, slice_s * n + 1e-9) for n in range(1, N_SLICES + 1)]
        allowed = [one.workers[max(0, at - 1)] for at in known]
        tips = [
            f"{n}{f', {one.reasons[at - 1]}' if at > before else ''}"
            for n, before, at in zip(allowed, [0, *known], known, strict=False)
        ]
        rows.append(
            {
                "limit": one.limit,
                axis("seconds", Scale(0.0, slice_s * N_SLICES)): strip(
                    [n / most for n in allowed], tips, f"{one.limit} allowed ", slice_s
                ),
                "changes": f"{len(one.workers):,}",
                "first": f"{one.workers[0]:,}",
                "last": f"{one.workers[-1]:,}",
                "last reason": one.reasons[-1],
            }
        )
    return plot_of(
        "limits",
        "Estimated limits over time",
        f"How many requests in flight each limit allowed (0 to {most}). Tooltips explain changes.",
        rows,
    )


def curves_plot(curves: Sequence[Curve], key: str, title: str, what: str) -> Plot | None:
    """Plot how a time is distributed, for each model; None if there are no values.

    Args:
        curves: The distributions.
        key: The plot's id.
        title: The plot's title.
        what: A sentence that says which time is shown.
    """
    scale = up_to(one.p95_s for one in curves)
    rows = []
    for one in curves:
        times_s = (one.p50_s, one.p95_s, one.longest_s)
        said = dict(zip(("p50", "p95", "longest"), map(duration, times_s), strict=True))
        tip = f"{one.model}: {', '.join(map(' '.join, said.items()))}"
        drawn = interval(scale, one.p50_s, one.shortest_s, one.p95_s, tip)
        rows.append({"model": one.model, axis("seconds", scale): drawn, "n": f"{one.n:,}", **said})
    note = f"{what} The point is the median; the line runs from the minimum to the 95th percentile."
    return plot_of(key, title, note, rows)


def costs_plot(costs: Sequence[ModelCost], currency: str) -> Plot | None:
    """Plot the cost per solved case by model; None if no costs are known."""
    scale = up_to(one.per_solved or 0.0 for one in costs)
    rows = []
    for one in costs:
        each = one.per_solved
        said = "-" if each is None else money(each, currency)
        drawn = bar(scale, each or 0.0, f"{one.model}: {said}")
        rows.append(
            {
                "model": one.model,
                axis(f"{currency} per solved case", scale): drawn,
                "per solved case": said,
                "cost": money(one.cost, currency),
                "solved": f"{one.n_solved:,}",
                "cases of unknown cost": f"{one.n_unknown:,}",
            }
        )
    return plot_of(
        "costs",
        "Cost per solved case",
        "The cost of all of a model's cases, divided by the number of its solved cases. The costs "
        "of roles, and of requests that got no answer, are excluded.",
        rows,
    )


def passes_plot(passes: Sequence[PassAt]) -> Plot | None:
    """Make a table of pass@k by model, best first; None if no cell was repeated."""
    by_model = by_key((one.model, one) for one in passes)
    ks = sorted({one.k for one in passes})
    rows = []
    for model, own in sorted(by_model.items(), key=lambda both: -both[1][0].value):
        cells = {one.k: _pass_cell(one) for one in own}
        rows.append({"model": model, **{f"k = {k}": cells.get(k, "-") for k in ks}})
    return plot_of(
        "passes",
        "Solved in at least one of k repetitions",
        "The probability that at least one of k repetitions of a cell is solved: the mean over "
        "cells, with its 95 % interval, on a scale from 0 to 100 %. At k = 1, all cells have the "
        "same weight. In the solve rate above, all cases have the same weight, so these two "
        "figures may differ slightly.",
        rows,
    )


def _pass_cell(one: PassAt) -> Markup:
    bounds = ""
    if one.low is not None and one.high is not None:
        bounds = f"{100 * one.low:.0f}\u2013{100 * one.high:.0f}"
    tip = f"{one.model}, pass@{one.k} {percent(one.value)}, {counted(one.n, 'cell')}"
    return Markup("<b>{:.0f} %</b> {}{}").format(
        100 * one.value, bounds, interval(_SHARES, one.value, one.low, one.high, tip)
    )
