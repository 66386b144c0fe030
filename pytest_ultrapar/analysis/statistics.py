"""The statistics of one run. Each comes with its number of cases. All functions are pure.

The coordinator imports types from this module, so scipy and numpy are loaded only in the functions
that need them.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

import msgspec

from pytest_ultrapar.pool.money import amount_of
from pytest_ultrapar.records import GRADED, Outcome
from pytest_ultrapar.store.timing import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_ultrapar.analysis.measures import Kind, Measures


_NORMAL = NormalDist()


def critical_z(confidence: float) -> float:
    """Return the two-sided quantile of the standard normal distribution: 1.96 for 0.95."""
    return _NORMAL.inv_cdf(0.5 + confidence / 2)


def critical_t(n: int, confidence: float) -> float:
    """Return the two-sided quantile of Student's t for the mean of `n` >= 2 values.

    For 2 values and a confidence of 0.95, it is 12.7.
    """
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(n - 1, 0.5 + confidence / 2))


Z_95 = critical_z(0.95)
"""A 95 % interval extends this many standard deviations (1.96) to each side."""
RESOLUTION_S = 1e-6
"""The shortest time that figures use, in seconds. Shorter times are replaced by it."""


_SEED = 95
_DRAWS = 1000
_MOST_BLOCKS = 64
_LEAST_DRAWN = 8
_FEW_CONFIDENCE, _FEW_LEAST_SPREAD = 0.99, 0.1
LEAST_CASES = 3
"""If either side of a comparison has fewer cases than this, there is no interval."""
_BEGINS, _ENDS = 0, 1
Bounds = tuple[float, float]


class Part(NamedTuple):
    """The contributions of one or more cases to the rates of two runs.

    Attributes:
        n_slow: How many of the cases were completed in the slower run, which is usually the serial
            one.
        slow_s: How many seconds of the slower run they took.
        n_fast: How many of the cases were completed in the faster run.
        fast_s: How many seconds of the faster run they took.
    """

    n_slow: int
    slow_s: float
    n_fast: int
    fast_s: float


def speedup(parts: Sequence[Part] | NDArray[np.float64]) -> float | None:
    """Divide the fast run's cases per second by the slow run's; None if either completed none."""
    whole = _rows(parts, len(Part._fields)).sum(axis=0)
    if not (whole > 0).all():
        return None
    n_slow, slow_s, n_fast, fast_s = map(float, whole)
    return (n_fast / fast_s) / (n_slow / slow_s)


def _rows(
    values: Sequence[Part] | Sequence[Span] | NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """Return parts or spans as an array with rows of `width` numbers; it may have no rows."""
    import numpy as np  # noqa: PLC0415

    return np.asarray(values, dtype=float).reshape(-1, width)


def speedup_interval(
    strata: Sequence[Sequence[Part] | NDArray[np.float64]],
) -> tuple[float, float] | None:
    """Return the speed-up's interval: 95 %, or 99 % with 3 to 7 cases; None with fewer than 3.

    With at least 8 cases, the interval comes from a bootstrap over cases. When a case is drawn, its
    contributions to the slow and to the fast rate are drawn together. So cases that are in both
    runs must be in the same stratum. A serial sample and the cases compared with it are two strata,
    which are drawn separately. If there are many cases, blocks that were formed at random are drawn
    instead of single cases. The sum has the same spread, and 12,000 cases take no longer than 64.

    The bootstrap interval should miss the true speed-up in 5 % of the samples. Suppose that the
    times of cases vary by 30 to 90 % of their mean. Then the interval misses it in 5 to 10 % of the
    samples with 8 cases, in 4 to 7 % with 30, and in 4 to 5 % with 100. With 3 cases, it would miss
    the speed-up in 22 % of them. Therefore, if there are fewer than 8 cases, Student's 99 %
    interval for the logarithm of the speed-up is used instead. It uses the first derivatives of the
    rates, and assumes that times vary by at least 10 % of their mean. This interval is wide. With 7
    cases whose times vary by 30 to 60 %, each end is a factor of 1.5 to 2.3 away from the speed-up.
    With 3 cases, the factor is 4 to 17. Student's interval misses the true speed-up in 0 to 3 % of
    the samples, even if times vary by as much as their mean or more.

    With few cases, the percentiles 2.5 and 97.5 of the bootstrap would make the interval too
    narrow. So the percentiles are moved outwards, by the ratio of Student's t to the normal
    distribution.

    Args:
        strata: One or more strata. Each is given as parts, or as an array in which each row
            contains the numbers of a part.

    Source: B. Efron, R. J. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13; T. C.
        Hesterberg, What Teachers Should Know About the Bootstrap, Am. Stat. 69 (2015) 371-386,
        section 5.3 (expanded percentiles). W. G. Cochran, Sampling Techniques (1977), chapter 6
        (derivatives of a ratio).
    """
    import numpy as np  # noqa: PLC0415

    columns = [_rows(parts, len(Part._fields)) for parts in strata]
    least = min((int(rows.any(axis=1).sum()) for rows in columns), default=0)
    if least < LEAST_CASES:
        return None
    if least < _LEAST_DRAWN:
        return _interval_of_few(columns, least)
    draw = np.random.default_rng(_SEED)
    sums = np.zeros((_DRAWS, len(Part._fields)))
    for rows in columns:
        # Put each part in a random block. If there are few parts, each part is a block of its own.
        mixed = draw.permutation(rows)
        n_blocks = min(len(rows), _MOST_BLOCKS)
        blocks = np.add.reduceat(mixed, np.arange(n_blocks) * len(rows) // n_blocks)
        sums += blocks[draw.integers(len(blocks), size=(_DRAWS, len(blocks)))].sum(axis=1)
    n_slow, slow_s, n_fast, fast_s = sums[(sums > 0).all(axis=1)].T
    if len(n_slow) < _DRAWS // 2:
        return None
    ratios = n_fast / fast_s / (n_slow / slow_s)
    tail = _tail(min(least, _MOST_BLOCKS))
    low = np.quantile(ratios, tail, method="lower")
    high = np.quantile(ratios, 1 - tail, method="higher")
    return float(low), float(high)


def makespan_shares(
    spans: Sequence[Span] | NDArray[np.float64], beside: Sequence[Span] | NDArray[np.float64] = ()
) -> list[float]:
    """Return each episode's share of the makespan, in the given order.

    Each moment is divided among the episodes in progress. Idle time is assigned to the episode that
    begins next. An alternative would be to give each episode the time since the previous
    completion. But this would depend on which completions coincide: if four lanes work in step,
    they complete four episodes together, and then none for a while.

    Args:
        spans: The episodes among which the time is divided. Without `beside`, the shares add up to
            the makespan.
        beside: Other episodes. Moments at which only these are in progress are left out, and so is
            idle time before such an episode.
    """
    import numpy as np  # noqa: PLC0415

    own = _rows(spans, 2)
    n = len(own)
    edges = np.concatenate([own, _stretches(_rows(beside, 2))])
    at = np.tile(np.arange(len(edges)), 2)
    kind = np.repeat((_BEGINS, _ENDS), len(edges))
    times_s = edges.T.ravel()
    order = np.lexsort((at, kind, times_s))
    at, kind, times_s = at[order], kind[order], times_s[order]
    step = np.where(kind == _BEGINS, 1, -1)
    # The number of episodes in progress before each event, and the time since the previous event.
    n_paying, n_beside = (np.cumsum(step * pays) - step * pays for pays in (at < n, at >= n))
    passed_s = np.diff(times_s, prepend=times_s[:1])
    # The share that an episode in progress from the beginning would have by then.
    paid_s = np.cumsum(np.where(n_paying > 0, passed_s / np.maximum(n_paying, 1), 0.0))
    idle_s = np.where((n_paying == 0) & (n_beside == 0), passed_s, 0.0)
    begins, ends = ((kind == which) & (at < n) for which in (_BEGINS, _ENDS))
    shares = np.zeros(n)
    shares[at[begins]] = idle_s[begins] - paid_s[begins]
    shares[at[ends]] += paid_s[ends]
    return shares.tolist()


def _stretches(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the periods during which at least one episode is in progress.

    There are fewer periods than episodes, so the caller has less to compute.
    """
    import numpy as np  # noqa: PLC0415

    if not len(edges):
        return edges
    begins_s, ends_s = edges[edges[:, 0].argsort()].T
    until_s = np.maximum.accumulate(ends_s)
    is_first = np.concatenate([[True], begins_s[1:] > until_s[:-1]])
    is_last = np.concatenate([is_first[1:], [True]])
    return np.column_stack([begins_s[is_first], until_s[is_last]])


def _interval_of_few(
    strata: Sequence[NDArray[np.float64]], least: int
) -> tuple[float, float] | None:
    import numpy as np  # noqa: PLC0415

    every = np.concatenate(strata)
    factor = speedup(every)
    if factor is None:
        return None
    variance = 0.0
    for rows in strata:
        # How far each case moves the logarithm of the speed-up.
        moved = rows / every.sum(axis=0) @ (-1, 1, 1, -1)
        variance += len(rows) * float(moved.var(ddof=1))
    error = max(math.sqrt(variance), _FEW_LEAST_SPREAD / math.sqrt(least))
    reach = math.exp(critical_t(least, _FEW_CONFIDENCE) * error)
    return factor / reach, factor * reach


def _tail(n: int) -> float:
    """Return the share of draws below the interval: 0.025 for many cases, and less for few."""
    return _NORMAL.cdf(-((n / (n - 1)) ** 0.5) * critical_t(n, 0.95))


class SerialSample(msgspec.Struct, frozen=True):
    """The result of a serial sample.

    Attributes:
        n: How many of the sample's episodes were completed, >= 1.
        duration_s: The time from the sample's first send to the end of its last episode, including
            gaps between episodes; >= 1e-6.
    """

    n: int
    duration_s: float


def whole_span(measures: Measures) -> Span | None:
    """Return the span from the first send to the end of the last measured episode, if any."""
    spans = measures.spans[measures.ran]
    return Span(float(spans[:, 0].min()), float(spans[:, 1].max())) if len(spans) else None


def keep_serial_times(measures: Measures) -> None:
    """Store in `measures` how long each completed case in the serial sample took.

    The time of a case is the time from the previous completion to its own. So the times add up to
    the duration of the sample and, like the makespan of a serial run, include the time of failed
    episodes.
    """
    import numpy as np  # noqa: PLC0415

    first_s, end_s = measures["serial_first_s"], measures["serial_end_s"]
    sampled = ~np.isnan(end_s)
    (done,) = np.nonzero(sampled & measures.completed)
    if len(done):
        done = done[np.argsort(end_s[done], kind="stable")]
        ends_s = end_s[done]
        ends_s[-1] = end_s[sampled].max()
        took_s = np.diff(ends_s, prepend=first_s[sampled].min())
        measures["serial_s"][done] = np.maximum(0.0, took_s)


def serial_times(measures: Measures) -> list[float]:
    """Return how many seconds each completed case in the serial sample took."""
    import numpy as np  # noqa: PLC0415

    times_s = measures["serial_s"]
    return cast("list[float]", times_s[~np.isnan(times_s)].tolist())


def serial_sample(measures: Measures) -> SerialSample | None:
    """Summarise the serial sample; None if there is no sample, or it has no completed case."""
    times_s = serial_times(measures)
    return SerialSample(len(times_s), max(sum(times_s), RESOLUTION_S)) if times_s else None


class PartTime(NamedTuple):
    """How much of a run's time some of its cases took.

    Attributes:
        measures: The chosen cases that ran. Cases that were not completed are included, because
            they took time, too.
        shares_s: How many seconds of the makespan are assigned to each of these cases.
        seconds: The sum of the shares; >= 1e-6.
    """

    measures: Measures
    shares_s: list[float]
    seconds: float


def part_time(run: Measures, chosen: Callable[[Kind], bool]) -> PartTime | None:
    """Return how much of a run's time the chosen cases took; None without a timed case.

    Args:
        run: All graded cases in the run.
        chosen: Selects the cases.
    """
    import numpy as np  # noqa: PLC0415

    ran = run.of(run.ran)
    is_chosen = ran.told(chosen)
    models = {ran.kinds[at].model for at in np.unique(ran["kind"][is_chosen])}
    pays = ran.told(lambda kind: kind.model in models)
    measures = ran.of(is_chosen)
    if not measures.timed.any():
        return None
    all_s = makespan_shares(ran.spans[pays], ran.spans[~pays])
    shares_s = np.array(all_s)[is_chosen[pays]].tolist()
    if len(measures) == len(ran):
        # Use the makespan itself, because the sum of the shares may differ in the last digit.
        whole = whole_span(ran)
        assert whole is not None
        seconds = whole.end_s - whole.first_send_s
    else:
        seconds = sum(shares_s)
    return PartTime(measures, shares_s, max(seconds, RESOLUTION_S))


Basis = Literal["at_most", "estimated", "sampled", "full"]
"""Where the serial time comes from: the run's own service times, a serial sample, or a serial run.

The run's own service times ("at_most") only show the mean number of requests in flight. This mean
is an upper bound on the speed-up, because service times may be longer while other requests are in
flight. Earlier versions called this source "estimated".
"""
BY_OWN_TIMES = ("at_most", "estimated")


class Latency(msgspec.Struct, frozen=True):
    """A distribution of durations in seconds, such as the durations of episodes.

    The duration of an episode is the time from its first lease to its end.
    """

    n: int
    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float


class MeanScore(msgspec.Struct, frozen=True):
    """The mean of a score over the `n` graded cases that have it.

    Attributes:
        interval: The 95 % interval, from `repetitions.mean_interval_of`; None if not computed.
    """

    mean: float
    n: int
    interval: tuple[float, float] | None = None


class RunStatistics(msgspec.Struct, frozen=True):
    """Counts, speed and scores of one run.

    Attributes:
        n_planned: How many cases were planned.
        n_final: How many cases have a final grade.
        counts: How many of these cases have each outcome; 0 for an outcome that no case has.
            `scored` is missing in runs from earlier versions.
        n_graded: How many cases are `solved`, `partial`, `unsolved` or `scored`.
        coverage: n_graded / (n_planned - skipped cases); 1 if there was nothing to measure.
        n_timed: How many completed episodes are included in `makespan_s`, `throughput`, `serial_s`,
            `speedup` and `latency`. Cases in the serial sample or in an earlier, interrupted part
            of the run are not included. If this is 0, these five figures are None.
        makespan_s: The time from the first send to the end of the last episode. If the statistics
            describe only some cases of a run, it is the share of the time that `part_time` assigns
            to these cases.
        throughput: How many episodes were completed per second of the makespan.
        serial_s: How many seconds the same episodes would take one after the other.
        basis: Where `serial_s` comes from.
        speedup: serial_s / makespan_s. This compares the run's cases per second with a run of one
            case at a time.
        latency: The latency of these episodes.
        n_attempts: How many requests the graded episodes sent. Requests to roles are excluded here,
            and from the tokens and the cost.
        tokens_in: The input tokens of these requests; None if no answer stated them.
        scores: The mean of each score over the graded cases, by name.
        speedup_interval: The bounds of `speedup` from the function `speedup_interval`, with a
            confidence of at least 95 %. None in mode `serial` and with fewer than 3 cases. The
            lower bound is 0 if only an upper bound on the speed-up is known.
        sample: The figures of the serial sample if `basis` is "sampled"; otherwise None.
        cost: The total cost of the graded episodes whose cost is known, in the manifest's currency.
            None if no cost is known.
    """

    n_planned: int
    n_final: int
    counts: dict[str, int]
    n_graded: int
    coverage: float
    n_timed: int
    makespan_s: float | None
    throughput: float | None
    serial_s: float | None
    basis: Basis
    speedup: float | None
    latency: Latency | None
    n_attempts: int
    tokens_in: int | None
    tokens_out: int | None
    scores: dict[str, MeanScore]
    speedup_interval: tuple[float, float] | None = None
    sample: SerialSample | None = None
    cost: float | None = None

    @property
    def n_rated(self) -> int:
        """How many cases are graded, except those that are graded by scores alone."""
        return self.n_graded - self.counts.get("scored", 0)

    @property
    def solved_rate(self) -> float | None:
        """The share of solved cases among rated cases; None if no case is rated."""
        return self.counts["solved"] / self.n_rated if self.n_rated else None

    @property
    def n_answered(self) -> int:
        """How many cases have a final grade and do not run again if the run is resumed."""
        return self.n_final - self.counts["infra"]

    @property
    def is_at_most(self) -> bool:
        """Whether the true speed-up may be any amount below `speedup`."""
        return self.basis == "at_most" and not (self.speedup_interval or (0.0,))[0]


def run_statistics(
    run: Measures,
    *,
    n_planned: int,
    mode: str,
    alone: float | None = None,
    chosen: Callable[[Kind], bool] = lambda _: True,
) -> RunStatistics:
    """Compute the statistics of a run, or of some of its cases.

    Args:
        run: The measures of all cases in the run that have a final grade.
        n_planned: How many of the chosen cases were planned, including cases without a grade.
        mode: The mode of the run. If it is `serial`, the makespan is also the serial time.
        alone: The same as in `Slowdown`.
        chosen: Selects the cases.
    """
    measures = run.of(run.told(chosen))
    counts = count_outcomes(measures)
    n_graded = sum(counts[outcome] for outcome in GRADED)
    n_wanted = n_planned - counts["skipped"]
    took = part_time(run, chosen)
    timed = measures.of(measures.timed)
    makespan_s = took.seconds if took is not None else None
    sample = serial_sample(measures)
    basis, serial_s = _serial(timed, makespan_s, sample, mode)
    units = measures.total("units")
    interval = None
    if took is not None and basis != "full":
        interval = _interval(took, serial_times(measures))
    if interval is not None and basis == "at_most":
        interval = interval[0] / alone if alone else 0.0, interval[1]
    return RunStatistics(
        n_planned=n_planned,
        n_final=len(measures),
        counts=counts,
        n_graded=n_graded,
        coverage=n_graded / n_wanted if n_wanted > 0 else 1.0,
        n_timed=len(timed),
        makespan_s=makespan_s,
        throughput=len(timed) / makespan_s if makespan_s is not None else None,
        serial_s=serial_s,
        basis=basis,
        speedup=serial_s / makespan_s if serial_s is not None and makespan_s else None,
        latency=latency_of(timed["duration_s"].tolist()),
        n_attempts=measures.total("n_attempts") or 0,
        tokens_in=measures.total("sent_in"),
        tokens_out=measures.total("sent_out"),
        scores=mean_scores(measures),
        speedup_interval=interval,
        sample=sample,
        cost=amount_of(units) if units is not None else None,
    )


PACE = ("makespan_s", "throughput", "serial_s", "speedup", "speedup_interval")


def without_pace(statistics: RunStatistics) -> RunStatistics:
    """Remove the makespan and the figures that depend on it.

    In a gateway's run, they include the pauses that clients make.
    """
    return msgspec.structs.replace(statistics, **dict.fromkeys(PACE))


def _serial(
    timed: Measures, makespan_s: float | None, sample: SerialSample | None, mode: str
) -> tuple[Basis, float | None]:
    if mode == "serial":
        return "full", makespan_s
    if sample is not None:
        return "sampled", len(timed) * sample.duration_s / sample.n if timed else None
    return "at_most", math.fsum(timed["service_s"]) if timed else None


def _interval(took: PartTime, sample_s: Sequence[float]) -> tuple[float, float] | None:
    import numpy as np  # noqa: PLC0415

    done = took.measures.completed
    parts = np.zeros((len(done), len(Part._fields)))
    if not sample_s:
        parts[done, 0] = 1
        parts[done, 1] = took.measures["service_s"][done]
    parts[done, 2] = 1
    parts[:, 3] = took.shares_s
    # The sample contains other cases than the measured ones, so the two are drawn separately.
    apart = [[Part(1, time_s, 0, 0.0) for time_s in sample_s]] if sample_s else []
    return speedup_interval([parts, *apart])


def count_outcomes(measures: Measures) -> dict[str, int]:
    """Count how many cases have each outcome."""
    import numpy as np  # noqa: PLC0415

    counts: dict[str, int] = dict.fromkeys(get_args(Outcome), 0)
    numbers = np.bincount(measures["kind"], minlength=len(measures.kinds))
    for kind, n in zip(measures.kinds, numbers.tolist(), strict=True):
        counts[kind.outcome] += n
    return counts


def mean_scores(
    measures: Measures,
    interval: Callable[[Sequence[Measures], Sequence[float]], Bounds | None] = lambda *_: None,
) -> dict[str, MeanScore]:
    """Return the mean of each score over the cases that have it, in the order the tests use.

    If this order differs between cases, the cases with the most scores determine it. The result
    does not depend on the order of the cases.

    Args:
        measures: The measures of the cases.
        interval: Computes the interval of a mean. It gets the measures of the cases that have the
            score, in several parts, and the score of each case. Returns None if there is no
            interval.
    """
    values: dict[str, tuple[list[Measures], list[float]]] = {}
    for names, part, own in sorted(measures.scores(), key=lambda one: (-len(one[0]), one[0])):
        for name, column in zip(names, own.T.tolist(), strict=True):
            parts, all_of_it = values.setdefault(name, ([], []))
            parts.append(part)
            all_of_it.extend(column)
    return {
        name: MeanScore(mean_of(own), len(own), interval(parts, own))
        for name, (parts, own) in values.items()
    }


def mean_of(values: Collection[float]) -> float:
    """Return the mean of one or more finite numbers; it is correct even if their sum overflows."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def wilson_interval(n_hits: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Return the bounds of an interval for a share of hits, within [0, 1]; (0, 1) if n is 0.

    Unlike the textbook interval `p +- z * s`, it is also valid for small n, and near 0 and 1. `n`
    may be an effective sample size, which is not always a whole number.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference,
        J. Am. Stat. Assoc. 22 (1927) 209-212, without correction for continuity.
    """
    if n == 0:
        return (0.0, 1.0)
    share = n_hits / n
    shrink = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if n_hits == 0 else max(0.0, centre - half)
    high = 1.0 if n_hits == n else min(1.0, centre + half)
    return (low, high)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile `share` (0 to 1) of a sorted, non-empty sample, interpolated linearly.

    Source: R. J. Hyndman, Y. Fan, Sample quantiles in statistical packages, Am. Stat. 50 (1996)
        361-365, type 7.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def latency_of(durations: Iterable[float]) -> Latency | None:
    """Return the distribution of some durations, given in seconds; None without durations."""
    ordered = sorted(durations)
    if not ordered:
        return None
    mean_s = mean_of(ordered)
    marks = (quantile(ordered, share) for share in (0.50, 0.90, 0.95, 0.99, 1.0))
    return Latency(len(ordered), mean_s, *marks)
