"""Compute figures for rules and table rows: the value in one run, or the change between two.

All functions are pure.
"""

from __future__ import annotations

from statistics import geometric_mean
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.analysis.paired import (
    NOTHING_KNOWN,
    Interval,
    difference_interval,
    possible_change,
    quantile_interval,
    ratio_interval,
    typical_ratio,
)
from pytest_ultrapar.analysis.repetitions import (
    MAJORITY,
    cell_change,
    cell_share,
    clusters_of,
    mean_change,
    mean_interval_of,
    n_repetitions,
    repetitions_of,
    share_of,
    solved_change,
)
from pytest_ultrapar.analysis.run_speeds import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.analysis.run_speeds import part_speed
from pytest_ultrapar.analysis.statistics import (
    BY_OWN_TIMES,
    LEAST_CASES,
    Part,
    makespan_shares,
    mean_of,
    quantile,
    speedup,
    speedup_interval,
)
from pytest_ultrapar.compare.rules import (
    COVERAGE,
    FIGURE,
    KEPT,
    QUANTILES,
    SCORE,
    selected,
    unit_of,
)
from pytest_ultrapar.report.text import counted
from pytest_ultrapar.store.timing import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_ultrapar.analysis.measured_run import CaseRow, MeasuredRun
    from pytest_ultrapar.analysis.run_speeds import RunSpeeds
    from pytest_ultrapar.analysis.statistics import Basis
    from pytest_ultrapar.compare.pairing import Pairing
    from pytest_ultrapar.compare.rules import Form, Rule

    Pair = tuple[CaseRow, CaseRow]


UNTIMED = "no selected case was timed"
UNGRADED = "no selected case was graded"
UNRATED = "the selected cases have no solve rate: they were graded by scores alone"


class Figure(NamedTuple):
    """A figure of one run, or its change between two runs.

    Attributes:
        value: The figure in the metric's unit. A relative change is a share.
        n: The number of cases, or of pairs of cases, that the figure includes.
        interval: The interval at the requested confidence (for the speed-up, at least 95 %). None
            for figures such as coverage, which are counted and have no sampling error.
        base: The baseline's figure; None without a baseline.
        new: The figure of the run itself.
        alike: For a change, whether every case or cell has the same figure in both runs.
        unknown: Why the interval is unknown. Empty if it is known, or if the only reason is that
            there are too few cases.
        left_out: A sentence about the cells that the figure leaves out; empty if it includes all
            cells.
    """

    value: float
    n: int
    interval: Interval | None
    base: float | None
    new: float
    alike: bool = False
    unknown: str = ""
    left_out: str = ""


class NoFigureError(Exception):
    """Raised if a figure cannot be computed. The message says what is missing."""


def figure_of_run(rule: Rule, run: MeasuredRun, rows: Mapping[str, CaseRow]) -> Figure:
    """Compute a rule's figure for one run.

    Args:
        rule: A rule that names the figure and selects cases. It must not compare two runs.
        run: The run.
        rows: The rows of the run's cases, by case id.

    Raises:
        NoFigureError: The run does not have the figure.
    """
    metric = rule.metric
    wanted = selected(rule, run.cases)
    own = [row for case_id, row in rows.items() if case_id in wanted]
    match metric:
        case "speedup":
            return _speedup(rule, run)
        case "throughput" | "makespan" | "efficiency":
            return _of_run(metric, run)
        case _ if metric == COVERAGE:
            return _coverage(own)
        case _ if metric.startswith(FIGURE):
            return _whole_figure(metric.removeprefix(FIGURE), run)
        case "solved_rate":
            return _solved_rate(rule, own)
        case _ if repetitions_of(metric) is not None:
            return _of_cells(rule, own)
        case _ if metric in QUANTILES:
            durations = [row.duration_s for row in own if row.timed]
            if not durations:
                raise NoFigureError(UNTIMED)
            value, interval = _quantile_of(rule, durations)
            return _single(value, len(durations), interval)
        case _:
            number = number_of(metric)
            known = [(row, each) for row in own if (each := number(row)) is not None]
            values = [each for _, each in known]
            if not values:
                raise NoFigureError(missing(metric))
            rows_of = [row for row, _ in known]
            interval = mean_interval_of(rows_of, values, confidence=rule.confidence)
            return _single(mean_of(values), len(values), interval)


def number_of(metric: str) -> Callable[[CaseRow], float | None]:
    """Return a function that reads a metric's number from a row.

    The function returns None if the row has no number.
    """
    if metric.startswith(SCORE):
        name = metric.removeprefix(SCORE)
        return lambda row: row.scores.get(name)
    numbers: dict[str, Callable[[CaseRow], float | None]] = {
        "service": lambda row: row.service_s if row.timed else None,
        "latency.mean": lambda row: row.duration_s if row.timed else None,
        "tokens_in": lambda row: row.tokens_in if row.graded else None,
        "tokens_out": lambda row: row.tokens_out if row.graded else None,
        "cost": lambda row: row.cost if row.graded else None,
    }
    return numbers[metric]


def missing(metric: str) -> str:
    """Return the message to show if no row has a number for a metric."""
    if metric in {"service", "latency.mean"}:
        return UNTIMED
    return f"none of the selected graded cases has a value for {metric}"


def _quantile_of(rule: Rule, durations: Sequence[float]) -> tuple[float, Interval]:
    share, ordered = QUANTILES[rule.metric], sorted(durations)
    interval = quantile_interval(ordered, share, confidence=rule.confidence)
    return quantile(ordered, share), interval


def _solved_rate(rule: Rule, own: Sequence[CaseRow]) -> Figure:
    rated = [row for row in own if row.rated]
    solved = [row.outcome == "solved" for row in rated]
    share = share_of(rated, solved, confidence=rule.confidence)
    if share is None:
        raise NoFigureError(UNRATED if any(row.graded for row in own) else UNGRADED)
    return _single(share.value, share.n, Interval(share.low, share.high))


def _of_cells(rule: Rule, own: Sequence[CaseRow]) -> Figure:
    if n_repetitions(row.cell for row in own) == 1:
        return _solved_rate(rule, own)
    share = cell_share(rule.metric, own, confidence=rule.confidence)
    if share is None:
        raise NoFigureError(_too_few(rule.metric))
    said = left_out(rule.metric, share.n, share.n_left_out)
    figure = _single(share.value, share.n, share.interval)
    return figure._replace(left_out=said, unknown=_NO_INTERVAL)


_NO_INTERVAL = (
    "no interval: the cluster argument of the suite's mark says that each repetition draws new "
    "random values. In such a suite, only pass@k and pass^k can have an interval, and only if k is "
    "at most half the number of repetitions"
)


def _too_few(metric: str) -> str:
    if metric == MAJORITY:
        return "no selected cell has more than half of its repetitions graded"
    return f"no selected cell has {counted(repetitions_of(metric) or 1, 'graded repetition')}"


def left_out(metric: str, n: int, n_left_out: int) -> str:
    """Return a sentence about the cells that a figure leaves out; empty if it includes all.

    Args:
        metric: The name of the figure.
        n: The number of cells that the figure includes.
        n_left_out: The number of cells that the figure leaves out.
    """
    if not n_left_out:
        return ""
    few = (
        "at most half of their repetitions were graded"
        if metric == MAJORITY
        else f"they have fewer than {counted(repetitions_of(metric) or 1, 'graded repetition')}"
    )
    return f"{n_left_out:,} of {counted(n + n_left_out, 'cell')} left out, because {few}"


def _single(value: float, n: int, interval: Interval | None) -> Figure:
    return Figure(value, n, interval, None, value)


def _of_run(metric: str, run: MeasuredRun) -> Figure:
    """Return a figure for the whole run, without an interval."""
    statistics = run.summary.statistics
    values = {
        "throughput": statistics.throughput,
        "makespan": statistics.makespan_s,
        "efficiency": run.summary.efficiency,
    }
    value = values[metric]
    if value is None:
        why = UNTIMED if metric != "efficiency" else "the run has no lower bound for its makespan"
        raise NoFigureError(why)
    return _single(value, statistics.n_timed, None)


def _speedup(rule: Rule, run: MeasuredRun) -> Figure:
    """Return the run's speed-up, or (from its benchmark file) the speed-up of a model or suite."""
    speeds = run.speeds
    if speeds is None and rule.filters:
        raise NoFigureError(
            f"{run.directory} has no {BENCHMARK_FILE} with speed-ups by model and suite"
        )
    whole = part_speed(None, None, run.summary.statistics)
    part = whole if speeds is None else speeds.part(dict(rule.filters))
    if part is None:
        raise NoFigureError(UNTIMED)
    if speeds is not None and part.basis != speeds.basis:
        raise NoFigureError("no selected case ran serially, so the speed-up was not measured")
    found = part.speedup_interval
    mode = run.manifest.mode if speeds is None else speeds.mode
    if mode == part.over or found is not None:
        # The mode with which others are compared has no interval.
        return _single(part.speedup, part.n, Interval(*found) if found is not None else None)
    few, where = part.n, "besides the serial sample"
    if part.n_serial is not None and part.n_serial < few:
        few, where = part.n_serial, "in the serial sample"
    cases = f"only {counted(few, 'case')} {where if part.basis == 'sampled' else ''}".rstrip()
    why = (
        f"{cases} (minimum {LEAST_CASES})" if few < LEAST_CASES else "the run's files contain none"
    )
    return _single(part.speedup, part.n, NOTHING_KNOWN)._replace(unknown=f"no interval: {why}")


def _whole_figure(name: str, run: MeasuredRun) -> Figure:
    found = next((one for one in run.summary.figures if one.name == name), None)
    if found is None:
        raise NoFigureError(f"run {run.run_id} has no figure {name}")
    interval = Interval(*found.interval) if found.interval is not None else None
    return _single(found.value, run.summary.statistics.n_graded, interval)


def _coverage(own: Sequence[CaseRow]) -> Figure:
    n = sum(row.outcome != "skipped" for row in own)
    if not n:
        raise NoFigureError("the run skipped all selected cases")
    return _single(sum(row.graded for row in own) / n, n, None)


ENOUGH_COMMON = 0.9
"""The minimum share of the timed cases that must be in both runs. Below it, the runs did different
work, and their speeds cannot be compared."""
_SHORTEST_S = 1e-6


def change(rule: Rule, pairing: Pairing) -> Figure:
    """Compute the change in a rule's figure: a difference or a relative change, as the rule says.

    Args:
        rule: A rule that names the figure and selects cases. The figure must not be `same_answers`.
        pairing: The two runs.

    Raises:
        NoFigureError: A run does not have the figure, or the runs did different work.
    """
    metric = rule.metric
    wanted = selected(rule, pairing.cases)
    pairs = [
        (row, pairing.new_rows[key]) for key, row in pairing.base_rows.items() if key in wanted
    ]
    if metric in {"throughput", "makespan"}:
        return _speed(rule, pairing)
    if metric == KEPT:
        return _kept(pairing)
    if metric in {"efficiency", "speedup", COVERAGE} or metric.startswith(FIGURE):
        return _counted(rule, pairing)
    if metric == "cost" and pairing.base.manifest.currency != pairing.new.manifest.currency:
        raise NoFigureError("the prices of the two runs are in different currencies")
    if metric == "changed":
        return _changed(rule, pairs)
    if metric == "solved_rate":
        return _solved(rule, pairs)
    if repetitions_of(metric) is not None:
        return _cells_changed(rule, pairs)
    if metric in QUANTILES:
        return _quantile(rule, pairs)
    return _mean(rule, pairs)


def _figure(rule: Rule, base: float, new: float, n: int, interval: Interval | None) -> Figure:
    """Compute the change, given the figures of both runs and the interval of their difference."""
    if rule.form != "relative":
        return Figure(new - base, n, interval, base, new)
    if base <= 0:
        raise NoFigureError(_no_part_of(base))
    shares = Interval(interval.low / base, interval.high / base) if interval else None
    return Figure(new / base - 1, n, shares, base, new)


def _counted(rule: Rule, pairing: Pairing) -> Figure:
    if rule.metric in {"efficiency", "speedup"}:
        _check_common(pairing)
    base, new = (
        figure_of_run(rule, run, rows)
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
    return _figure(rule, base.new, new.new, min(base.n, new.n), interval)


def _kept(pairing: Pairing) -> Figure:
    if not pairing.n_base:
        raise NoFigureError("the baseline skipped all of its cases")
    share = pairing.n_kept / pairing.n_base
    return Figure(share, pairing.n_base, None, None, share)


def _both_graded(pairs: Sequence[Pair]) -> list[Pair]:
    graded = [(base, new) for base, new in pairs if base.graded and new.graded]
    if not graded:
        raise NoFigureError(UNGRADED)
    return graded


def _changed(rule: Rule, pairs: Sequence[Pair]) -> Figure:
    graded = _both_graded(pairs)
    share = share_of(
        [base for base, _ in graded],
        [base.outcome != new.outcome for base, new in graded],
        confidence=rule.confidence,
    )
    if share is None or not share.value:
        return Figure(0.0, len(graded), None, None, 0.0, alike=True)
    return Figure(share.value, share.n, Interval(share.low, share.high), None, share.value)


def _solved(rule: Rule, pairs: Sequence[Pair]) -> Figure:
    rated = [(base, new) for base, new in _both_graded(pairs) if base.rated and new.rated]
    if not rated:
        raise NoFigureError(UNRATED)
    gained, lost, interval = solved_change(rated, confidence=rule.confidence)
    n, before = len(rated), sum(base.outcome == "solved" for base, _ in rated)
    figure = _figure(rule, before / n, (before + gained - lost) / n, n, interval)
    return figure._replace(alike=not gained + lost)


def _cells_changed(rule: Rule, pairs: Sequence[Pair]) -> Figure:
    if n_repetitions(base.cell for base, _ in pairs) == 1:
        return _solved(rule, pairs)
    found = cell_change(rule.metric, pairs, confidence=rule.confidence)
    if found is None:
        raise NoFigureError(f"{_too_few(rule.metric)} in both runs")
    figure = _figure(rule, found.base, found.new, found.n, found.interval)
    return figure._replace(
        alike=found.alike,
        left_out=left_out(rule.metric, found.n, found.n_left_out),
        unknown=_NO_INTERVAL if any(base.cluster is not None for base, _ in pairs) else "",
    )


def _speed(rule: Rule, pairing: Pairing) -> Figure:
    """Compute the change in throughput or makespan for the common cases, as `ultrapar bench` does.

    Each case contributes its share of both makespans. The interval accounts only for the choice of
    cases. So the rule's bound must leave room for differences that occur from day to day, even on
    the same machine.
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
    is_time = rule.metric == "makespan"
    base, new = (before_s, after_s) if is_time else (n / before_s, n / after_s)
    if factor is not None and found is not None:
        slowest, fastest = (before_s / after_s * bound / factor for bound in found)
        low, high = (1 / fastest, 1 / slowest) if is_time else (slowest, fastest)
        interval = Interval((low - 1) * base, (high - 1) * base)
    return _figure(rule, base, new, n, interval)


def _check_common(pairing: Pairing) -> None:
    if not pairing.timed:
        raise NoFigureError(UNTIMED)
    if pairing.timed_share < ENOUGH_COMMON:
        raise NoFigureError(
            f"only {pairing.timed_share * 100:.0f} % of the timed cases are in both runs, so "
            "the speeds of the runs cannot be compared. Use the same cases, repetitions and "
            "--ultrapar-baseline in both runs, or the service metric, which compares common cases"
        )


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


def _quantile(rule: Rule, pairs: Sequence[Pair]) -> Figure:
    timed = [(base.duration_s, new.duration_s) for base, new in pairs if base.timed and new.timed]
    if not timed:
        raise NoFigureError(UNTIMED)
    base, base_interval = _quantile_of(rule, [base for base, _ in timed])
    new, new_interval = _quantile_of(rule, [new for _, new in timed])
    interval = difference_interval(base, base_interval, new, new_interval)
    return _figure(rule, base, new, len(timed), interval)


def _mean(rule: Rule, pairs: Sequence[Pair]) -> Figure:
    number = number_of(rule.metric)
    known = [
        (base, (early, late))
        for base, new in pairs
        if (early := number(base)) is not None and (late := number(new)) is not None
    ]
    both = [values for _, values in known]
    if not both:
        raise NoFigureError(missing(rule.metric))
    before, after = [early for early, _ in both], [late for _, late in both]
    alike = before == after
    base_mean, new_mean = mean_of(before), mean_of(after)
    if rule.form != "relative":
        clusters = clusters_of([row for row, _ in known])
        interval = mean_change(clusters, both, confidence=rule.confidence)
        figure = _figure(rule, base_mean, new_mean, len(both), interval)
        return figure._replace(alike=alike)
    if rule.metric == "service":
        # The ratio is a geometric mean, so the times are also shown as geometric means.
        both = [(early, late) for early, late in both if early > 0 and late > 0]
        ratio = typical_ratio(before, after, confidence=rule.confidence)
        if both:
            base_mean, new_mean = (geometric_mean(times_s) for times_s in zip(*both, strict=True))
    else:
        # Two times are never exactly equal, but scores and tokens may be.
        ends = None if rule.metric == "latency.mean" else possible_change([*before, *after])
        ratio = ratio_interval(before, after, ends=ends, confidence=rule.confidence)
    if ratio is None:
        raise NoFigureError(_no_part_of(base_mean))
    middle, (low, high) = ratio
    return Figure(middle - 1, len(both), Interval(low - 1, high - 1), base_mean, new_mean, alike)


def _no_part_of(base: float) -> str:
    return f"the baseline's figure is {base:g}, so there is no relative change"


NONE = "-"
SERVICE_MEANS = (
    "service: the geometric mean of the cases' times without waits for limits; its change is the "
    "geometric mean of new time / baseline time over the common cases"
)
CELL_FIGURES = (
    "pass@k, pass^k and majority: n counts cells (a test with its parameters and model), not"
    " repetitions"
)
_SERIAL_TIMES: dict[Basis, str] = {
    "at_most": "the sum of that run's service times and is therefore an upper bound",
    "estimated": "serial times estimated from that run's service times and is usually too high",
    "sampled": "its serial sample",
    "full": "a {over} run of the same cases",
}


def speedup_notes(runs: Mapping[str, MeasuredRun | RunSpeeds]) -> Iterator[str]:
    """Yield sentences that say how each run's speed-up was measured or estimated.

    Args:
        runs: The runs, by the names that the sentences use.
    """
    bases = {name: run.basis for name, run in runs.items()}
    for name, basis in bases.items():
        if basis is not None:
            times = _SERIAL_TIMES[basis].format(over=runs[name].over)
            yield f"the speed-up of {name} is based on {times}"
    if {*BY_OWN_TIMES} & {*bases.values()}:
        yield (
            "a speed-up that was not measured cannot reveal a regression, because it rises when "
            "the provider gets slower; use throughput and service instead"
        )


def client_notes(runs: Mapping[str, MeasuredRun]) -> list[str]:
    """Return a sentence for each run whose speed was limited by the client.

    Args:
        runs: The runs, by the names that the sentences use.
    """
    return [
        f"the client, not the pool, limited the speed of {name}: {run.summary.client_bound}"
        for name, run in runs.items()
        if run.summary.client_bound
    ]


def figure_text(metric: str, value: float | None, form: Form = "absolute") -> str:
    """Return a figure, a difference (`+0.3 s`) or a relative change (`-13.2 %`) as text."""
    if value is None:
        return NONE
    if form == "relative":
        # Add zero to avoid "-0.0".
        return f"{round(value * 100, 1) + 0.0:+.1f} %"
    if form == "difference":
        return ("-" if value < 0 else "+") + unit_of(metric).shown(abs(value))
    return unit_of(metric).shown(value)


def interval_text(metric: str, low: float | None, high: float | None, form: Form) -> str:
    """Return an interval as text: `-14.1 to -12.3 %`, or `from 2.31 s` if it has no upper end."""
    texts = [figure_text(metric, bound, form) for bound in (low, high)]
    if low is None and high is None:
        return "unknown"
    if low is None:
        return f"up to {texts[1]}"
    if high is None:
        return f"from {texts[0]}"
    first, _, unit = texts[0].partition(" ")
    same_unit = unit and texts[1].endswith(f" {unit}") and texts[1].count(" ") == 1
    return f"{first if same_unit else texts[0]} to {texts[1]}"
