"""A series of runs in turn: what each solved, took and cost, on the cases that all of them have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.equivalence import ALL_MODELS
from pytest_ultrapar.compare.figures import Figure, NoFigureError, figure_of_run
from pytest_ultrapar.pages.figures import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.analysis.measured_run import CaseRow, MeasuredRun
    from pytest_ultrapar.compare.comparison import Comparison


class RunLine(msgspec.Struct, frozen=True):
    """A whole run, as it says itself.

    Attributes:
        number: Its place in the series, from 1.
        cost: Of all of its requests, in `currency`; None where no price is known.
        n_unknown: Answered requests that it lacks, since their cost is not known.
    """

    number: int
    run_id: str
    started: str
    mode: str
    n_graded: int
    per_s: float | None
    makespan_s: float | None
    efficiency: float | None
    cost: float | None
    currency: str
    n_unknown: int


class RatePoint(msgspec.Struct, frozen=True):
    """The solved rate of one model in one run, on the cases that all runs have.

    Attributes:
        model: As it is shown, no two alike; `ALL_MODELS` for all together.
        n: Graded cases.
        low: Of its interval at 95 %.
    """

    number: int
    model: str
    value: float
    n: int
    low: float | None
    high: float | None


class Drift(msgspec.Struct, frozen=True):
    """All runs in turn.

    Attributes:
        n_common: Cases that all of them have.
    """

    runs: list[RunLine]
    rates: list[RatePoint]
    n_common: int


def drift(base: MeasuredRun, comparisons: Sequence[Comparison]) -> Drift:
    """The baseline and the runs that were compared with it, in this order."""
    runs = [base, *(each.pairing.new for each in comparisons)]
    # A pair has the rows of its own common cases; those that all runs have are in each of them.
    rows: list[Mapping[str, CaseRow]] = [
        comparisons[0].pairing.base_rows,
        *(each.pairing.new_rows for each in comparisons),
    ]
    common = set(rows[0]).intersection(*rows[1:])
    lines = [_line(number, run) for number, run in enumerate(runs, start=1)]
    rates = [
        point
        for number, (run, own) in enumerate(zip(runs, rows, strict=True), start=1)
        for point in _rates(number, run, [own[key] for key in rows[0] if key in common])
    ]
    return Drift(lines, rates, len(common))


def _line(number: int, run: MeasuredRun) -> RunLine:
    cost = run.summary.cost
    return RunLine(
        number,
        run.run_id,
        f"{run.manifest.started_at:%Y-%m-%d %H:%M}",
        run.summary.mode,
        run.summary.statistics.n_graded,
        _value("throughput", run),
        _value("makespan", run),
        _value("efficiency", run),
        cost.total if cost is not None else None,
        cost.currency if cost is not None else "",
        cost.n_unknown if cost is not None else 0,
    )


def _value(metric: str, run: MeasuredRun) -> float | None:
    found = _figure(metric, run, [])
    return found.value if found is not None else None


def _rates(number: int, run: MeasuredRun, rows: Sequence[CaseRow]) -> list[RatePoint]:
    models = sorted({row.model for row in rows})
    groups = {model: [row for row in rows if row.model == model] for model in models}
    if len(groups) > 1:
        groups = {ALL_MODELS: list(rows), **groups}
    names = {ALL_MODELS: ALL_MODELS, **dict(zip(models, labels(models), strict=True))}
    points = []
    for model, own in groups.items():
        found = _figure("solved_rate", run, own)
        if found is not None:
            low, high = found.interval.known if found.interval is not None else (None, None)
            points.append(RatePoint(number, names[model], found.value, found.n, low, high))
    return points


def _figure(metric: str, run: MeasuredRun, rows: Sequence[CaseRow]) -> Figure | None:
    try:
        return figure_of_run(metric, run, rows, {row.case_id for row in rows})
    except NoFigureError:
        return None
