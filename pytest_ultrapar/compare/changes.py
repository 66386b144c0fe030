"""How a figure changed between two runs, on the cases that both have, with its interval; pure."""

from __future__ import annotations

from statistics import geometric_mean
from typing import TYPE_CHECKING

from pytest_ultrapar.compare.figures import (
    UNGRADED,
    UNTIMED,
    Figure,
    NoFigureError,
    clusters_of,
    figure_of_run,
    mean,
    missing,
    number_of,
    quantile_of,
)
from pytest_ultrapar.compare.metrics import COVERAGE, KEPT, QUANTILES
from pytest_ultrapar.results.clustered import clustered_mean_interval, clustered_share
from pytest_ultrapar.results.paired import (
    CONFIDENCE,
    NOTHING_KNOWN,
    Interval,
    difference_interval,
    possible_change,
    rate_difference,
    ratio_interval,
    typical_ratio,
)
from pytest_ultrapar.results.service import Span
from pytest_ultrapar.results.speedup import Part, makespan_shares, speedup, speedup_interval

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_ultrapar.compare.figures import Filters
    from pytest_ultrapar.compare.pairing import Pairing
    from pytest_ultrapar.results.case_row import CaseRow

    Pair = tuple[CaseRow, CaseRow]

ENOUGH_COMMON = 0.9
"""Where fewer of the timed cases are in both runs, their speeds are those of different work."""

_SHORTEST_S = 1e-6


def change(
    metric: str,
    pairing: Pairing,
    wanted: Collection[str],
    *,
    relative: bool,
    filters: Filters = (),
    confidence: float = CONFIDENCE,
) -> Figure:
    """How a metric's figure changed.

    Args:
        metric: Its name; not `same_answers`.
        pairing: The two runs.
        wanted: Ids of the cases that it is about, all of them common.
        relative: As a share of the baseline's figure, else as the difference.
        filters: By which they were chosen.
        confidence: Of its interval.

    Raises:
        NoFigureError: A run has none, or the runs' work is not the same.
    """
    pairs = [
        (row, pairing.new_rows[key]) for key, row in pairing.base_rows.items() if key in wanted
    ]
    clusters = clusters_of(pairing.cases)
    if metric in {"throughput", "makespan"}:
        return _speed(metric, pairing, relative=relative)
    if metric == KEPT:
        return _kept(pairing)
    if metric in {"efficiency", "speedup", COVERAGE}:
        return _counted(metric, pairing, wanted, relative=relative, filters=filters)
    if metric in {"solved_rate", "changed"}:
        return _rate(metric, pairs, clusters, relative=relative, confidence=confidence)
    if metric in QUANTILES:
        return _quantile(QUANTILES[metric], pairs, relative=relative, confidence=confidence)
    return _mean(metric, pairs, clusters, relative=relative, confidence=confidence)


def _figure(
    base: float, new: float, n: int, interval: Interval | None, *, relative: bool
) -> Figure:
    """Of the figures themselves; `interval` is that of their difference."""
    if not relative:
        return Figure(new - base, n, interval, base, new)
    if base <= 0:
        raise NoFigureError(_no_part_of(base))
    shares = Interval(interval.low / base, interval.high / base) if interval else None
    return Figure(new / base - 1, n, shares, base, new)


def _counted(
    metric: str, pairing: Pairing, wanted: Collection[str], *, relative: bool, filters: Filters
) -> Figure:
    if metric != COVERAGE:
        _check_common(pairing)
    base, new = (
        figure_of_run(metric, run, list(rows.values()), wanted, filters=filters)
        for run, rows in ((pairing.base, pairing.base_rows), (pairing.new, pairing.new_rows))
    )
    interval = None
    if base.interval is not None or new.interval is not None:
        interval = difference_interval(
            base.new,
            base.interval or Interval(base.new, base.new),
            new.new,
            new.interval or Interval(new.new, new.new),
        )
    return _figure(base.new, new.new, min(base.n, new.n), interval, relative=relative)


def _kept(pairing: Pairing) -> Figure:
    if not pairing.n_base:
        msg = "the baseline skipped all of its cases"
        raise NoFigureError(msg)
    share = pairing.n_kept / pairing.n_base
    return Figure(share, pairing.n_base, None, None, share)


def _rate(
    metric: str,
    pairs: Sequence[Pair],
    clusters: Mapping[str, str],
    *,
    relative: bool,
    confidence: float,
) -> Figure:
    graded = [(base, new) for base, new in pairs if base.graded and new.graded]
    n = len(graded)
    if not n:
        raise NoFigureError(UNGRADED)
    if metric == "changed":
        share = clustered_share(
            ((clusters[base.case_id], base.outcome != new.outcome) for base, new in graded),
            confidence=confidence,
        )
        if share is None or not share.value:
            return Figure(0.0, n, None, None, 0.0, alike=True)
        return Figure(share.value, n, Interval(share.low, share.high), None, share.value)
    solved = [(base.outcome == "solved", new.outcome == "solved") for base, new in graded]
    gained, lost = solved.count((False, True)), solved.count((True, False))
    kept = solved.count((True, True))
    interval = rate_difference(n, gained, lost, confidence=confidence)
    if len({clusters[base.case_id] for base, _ in graded}) < n:
        low, high = clustered_mean_interval(
            [
                (clusters[base.case_id], float(after) - before)
                for (base, _), (before, after) in zip(graded, solved, strict=True)
            ],
            ends=Interval(-1.0, 1.0),
            confidence=confidence,
        )
        interval = Interval(min(interval.low, low), max(interval.high, high))
    figure = _figure((kept + lost) / n, (kept + gained) / n, n, interval, relative=relative)
    return figure._replace(alike=not gained + lost)


def _speed(metric: str, pairing: Pairing, *, relative: bool) -> Figure:
    """Throughput or makespan of the common cases, with the interval that `ultrapar bench` has.

    Each case stands for its shares of both makespans. Cases drawn anew are what it knows of; how a
    machine's day differs from the next the rule's bound has to leave room for.
    """
    _check_common(pairing)
    timed = pairing.timed
    before_s, after_s = _makespans(pairing, timed)
    parts = [
        Part(1, base_s, 1, new_s)
        for base_s, new_s in zip(
            makespan_shares([_span(base) for base, _ in timed]),
            makespan_shares([_span(new) for _, new in timed]),
            strict=True,
        )
    ]
    factor, found = speedup(parts), speedup_interval([parts])
    interval = NOTHING_KNOWN
    n = len(timed)
    base, new = (before_s, after_s) if metric == "makespan" else (n / before_s, n / after_s)
    if factor is not None and found is not None:
        slowest, fastest = (before_s / after_s * bound / factor for bound in found)
        low, high = (1 / fastest, 1 / slowest) if metric == "makespan" else (slowest, fastest)
        interval = Interval((low - 1) * base, (high - 1) * base)
    return _figure(base, new, n, interval, relative=relative)


def _check_common(pairing: Pairing) -> None:
    if not pairing.timed:
        raise NoFigureError(UNTIMED)
    if pairing.timed_share < ENOUGH_COMMON:
        msg = (
            f"only {pairing.timed_share * 100:.0f} % of the timed cases are in both runs, and the"
            " speed of different work is not compared; give both runs the same cases, repetitions"
            " and --ultrapar-baseline, or judge by service, which pairs the common cases"
        )
        raise NoFigureError(msg)


def _makespans(pairing: Pairing, timed: Sequence[Pair]) -> tuple[float, float]:
    before_s, after_s = (run.summary.statistics.makespan_s for run in (pairing.base, pairing.new))
    if pairing.same_timed and before_s is not None and after_s is not None:
        return before_s, after_s
    return _elapsed_s([base for base, _ in timed]), _elapsed_s([new for _, new in timed])


def _span(row: CaseRow) -> Span:
    return Span(row.started_at.timestamp(), row.ended_at.timestamp())


def _elapsed_s(rows: Sequence[CaseRow]) -> float:
    start, end = min(row.started_at for row in rows), max(row.ended_at for row in rows)
    return max((end - start).total_seconds(), _SHORTEST_S)


def _quantile(share: float, pairs: Sequence[Pair], *, relative: bool, confidence: float) -> Figure:
    timed = [(base.duration_s, new.duration_s) for base, new in pairs if base.timed and new.timed]
    if not timed:
        raise NoFigureError(UNTIMED)
    base, base_interval = quantile_of([base for base, _ in timed], share, confidence)
    new, new_interval = quantile_of([new for _, new in timed], share, confidence)
    interval = difference_interval(base, base_interval, new, new_interval)
    return _figure(base, new, len(timed), interval, relative=relative)


def _mean(
    metric: str,
    pairs: Sequence[Pair],
    clusters: Mapping[str, str],
    *,
    relative: bool,
    confidence: float,
) -> Figure:
    number = number_of(metric)
    known = {
        base.case_id: (early, late)
        for base, new in pairs
        if (early := number(base)) is not None and (late := number(new)) is not None
    }
    both = list(known.values())
    if not both:
        raise NoFigureError(missing(metric))
    before, after = [early for early, _ in both], [late for _, late in both]
    alike = before == after
    base_mean, new_mean = mean(before), mean(after)
    if not relative:
        interval = clustered_mean_interval(
            [(clusters[case_id], late - early) for case_id, (early, late) in known.items()],
            ends=possible_change([*before, *after]),
            confidence=confidence,
        )
        figure = _figure(base_mean, new_mean, len(both), interval, relative=False)
        return figure._replace(alike=alike)
    if metric == "service":
        # Means that are not geometric would not fit a ratio that is.
        both = [(early, late) for early, late in both if early > 0 and late > 0]
        ratio = typical_ratio(before, after, confidence=confidence)
        if both:
            base_mean, new_mean = (geometric_mean(times_s) for times_s in zip(*both, strict=True))
    else:
        # Times never repeat; scores and tokens do.
        ends = None if metric == "latency.mean" else possible_change([*before, *after])
        ratio = ratio_interval(before, after, ends=ends, confidence=confidence)
    if ratio is None:
        raise NoFigureError(_no_part_of(base_mean))
    middle, (low, high) = ratio
    return Figure(middle - 1, len(both), Interval(low - 1, high - 1), base_mean, new_mean, alike)


def _no_part_of(base: float) -> str:
    return f"the baseline's figure is {base:g}, and nothing is a part of that"
