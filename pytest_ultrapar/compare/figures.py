"""The figure that a rule or a table speaks of, in one run, with its interval; pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.compare.metrics import COVERAGE, QUANTILES, SCORE
from pytest_ultrapar.report.numbers import counted
from pytest_ultrapar.results.clustered import clustered_mean_interval, clustered_share
from pytest_ultrapar.results.paired import (
    CONFIDENCE,
    NOTHING_KNOWN,
    Interval,
    possible_range,
    quantile_interval,
)
from pytest_ultrapar.results.run_speeds import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.results.run_speeds import part_speed
from pytest_ultrapar.results.speedup import LEAST_CASES
from pytest_ultrapar.results.statistics import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pytest_ultrapar.records import Case
    from pytest_ultrapar.results.case_row import CaseRow
    from pytest_ultrapar.results.measured_run import MeasuredRun
    from pytest_ultrapar.results.run_speeds import PartSpeed, RunSpeeds

    Filters = tuple[tuple[str, str], ...]

UNTIMED = "no case of it was timed"
UNGRADED = "no case of it was graded"


class Figure(NamedTuple):
    """A figure, or its change.

    Attributes:
        value: In the metric's unit; a relative change as a share.
        n: Cases, or pairs of cases, that it stands on.
        interval: At the confidence asked for, of the speed-up at least 95 %; None for a count of
            the run itself, which no sample can be wrong about.
        base: The baseline's figure; None without one.
        new: The run's figure.
        alike: Of a change: whether every pair has the same figure in both runs.
        unknown: Why nothing is known of the interval; empty if it is known, or the count is all
            that there is to say.
    """

    value: float
    n: int
    interval: Interval | None
    base: float | None
    new: float
    alike: bool = False
    unknown: str = ""


class NoFigureError(Exception):
    """There is nothing to compute the figure of; the message says what is missing."""


def figure_of_run(
    metric: str,
    run: MeasuredRun,
    rows: Sequence[CaseRow],
    wanted: Collection[str],
    *,
    filters: Filters = (),
    confidence: float = CONFIDENCE,
) -> Figure:
    """A metric's figure in one run.

    Args:
        metric: Its name; none that needs two runs.
        run: The run.
        rows: All of its rows.
        wanted: Ids of the cases that it is about.
        filters: By which they were chosen: the speed-up of a part of a run is known by its model
            and suite.
        confidence: Of its interval.

    Raises:
        NoFigureError: The run has none.
    """
    own = [row for row in rows if row.case_id in wanted]
    match metric:
        case "speedup":
            return _speedup(run, filters)
        case "throughput" | "makespan" | "efficiency":
            return _of_run(metric, run)
        case _ if metric == COVERAGE:
            return _coverage(run, own, wanted)
        case "solved_rate":
            return _solved_rate(run, own, confidence)
        case _ if metric in QUANTILES:
            durations = [row.duration_s for row in own if row.timed]
            if not durations:
                raise NoFigureError(UNTIMED)
            value, interval = quantile_of(durations, QUANTILES[metric], confidence)
            return _single(value, len(durations), interval)
        case _:
            number = number_of(metric)
            known = {row.case_id: each for row in own if (each := number(row)) is not None}
            values = list(known.values())
            if not values:
                raise NoFigureError(missing(metric))
            ends = possible_range(values)
            clusters = clusters_of(run.cases)
            interval = clustered_mean_interval(
                [(clusters[case_id], each) for case_id, each in known.items()],
                ends=ends,
                confidence=confidence,
            )
            return _single(mean(values), len(values), interval)


def number_of(metric: str) -> Callable[[CaseRow], float | None]:
    """What a row says to a metric that is a mean over cases; None where it says nothing."""
    if metric.startswith(SCORE):
        name = metric.removeprefix(SCORE)
        return lambda row: row.scores.get(name)
    numbers: dict[str, Callable[[CaseRow], float | None]] = {
        "service": lambda row: row.service_s if row.timed else None,
        "latency.mean": lambda row: row.duration_s if row.timed else None,
        "tokens_in": lambda row: row.tokens_in if row.graded else None,
        "tokens_out": lambda row: row.tokens_out if row.graded else None,
    }
    return numbers[metric]


def missing(metric: str) -> str:
    """What to say where no row has a metric's number."""
    if metric in {"service", "latency.mean"}:
        return UNTIMED
    return f"no graded case of it has {metric}"


def quantile_of(
    durations: Sequence[float], share: float, confidence: float
) -> tuple[float, Interval]:
    """A quantile of at least one duration, and its interval."""
    ordered = sorted(durations)
    return quantile(ordered, share), quantile_interval(ordered, share, confidence=confidence)


def mean(values: Sequence[float]) -> float:
    """The mean of at least one number."""
    return math.fsum(values) / len(values)


def clusters_of(cases: Iterable[Case]) -> dict[str, str]:
    """The cluster of each case, by its id; one that depends on no other is a cluster itself."""
    return {case.case_id: case.cluster or case.case_id for case in cases}


def _solved_rate(run: MeasuredRun, own: Sequence[CaseRow], confidence: float) -> Figure:
    clusters = clusters_of(run.cases)
    share = clustered_share(
        ((clusters[row.case_id], row.outcome == "solved") for row in own if row.graded),
        confidence=confidence,
    )
    if share is None:
        raise NoFigureError(UNGRADED)
    return _single(share.value, share.n, Interval(share.low, share.high))


def _single(value: float, n: int, interval: Interval | None) -> Figure:
    return Figure(value, n, interval, None, value)


def _of_run(metric: str, run: MeasuredRun) -> Figure:
    """A count of the whole run."""
    statistics = run.summary.statistics
    values = {
        "throughput": statistics.throughput,
        "makespan": statistics.makespan_s,
        "efficiency": run.summary.efficiency,
    }
    value = values[metric]
    if value is None:
        why = UNTIMED if metric != "efficiency" else "the run has no lower bound of its makespan"
        raise NoFigureError(why)
    return _single(value, statistics.n_timed, None)


def _speedup(run: MeasuredRun, filters: Filters) -> Figure:
    if run.speeds is not None:
        return speedup_of(run.speeds, filters)
    if filters:
        msg = f"{run.directory} has no {BENCHMARK_FILE} with the speed-up of a part of the run"
        raise NoFigureError(msg)
    part = part_speed(None, None, run.summary.statistics)
    if part is None:
        raise NoFigureError(UNTIMED)
    return _factor(part, is_base=run.manifest.mode == part.over)


def speedup_of(speeds: RunSpeeds, filters: Filters) -> Figure:
    """The speed-up that a benchmark file has of a model, a suite, both or the whole run.

    Raises:
        NoFigureError: No case of it was timed, or it is estimated where the whole is measured.
    """
    part = speeds.part(dict(filters))
    if part is None:
        raise NoFigureError(UNTIMED)
    if part.basis != speeds.basis:
        msg = "no case of it was completed one after the other, so its speed-up is only estimated"
        raise NoFigureError(msg)
    return _factor(part, is_base=speeds.mode == part.over)


def _factor(part: PartSpeed, *, is_base: bool) -> Figure:
    """The base of all speed-ups has no interval of its own; too few cases tell nothing."""
    found = part.speedup_interval
    if is_base or found is not None:
        return _single(part.speedup, part.n, Interval(*found) if found is not None else None)
    few, where = part.n, "besides the serial sample"
    if part.n_serial is not None and part.n_serial < few:
        few, where = part.n_serial, "in the serial sample"
    cases = f"{counted(few, 'case')} {where if part.basis == 'sampled' else ''}".rstrip()
    why = f"{cases}, needs {LEAST_CASES}" if few < LEAST_CASES else "the file has none"
    return _single(part.speedup, part.n, NOTHING_KNOWN)._replace(unknown=f"no interval: {why}")


def _coverage(run: MeasuredRun, own: Sequence[CaseRow], wanted: Collection[str]) -> Figure:
    n_skipped = sum(row.outcome == "skipped" for row in own)
    n = sum(case.case_id in wanted for case in run.cases) - n_skipped
    if n <= 0:
        msg = "no case of it was to be measured"
        raise NoFigureError(msg)
    return _single(sum(row.graded for row in own) / n, n, None)
