"""The statistics of one run, each with the number of its cases. All functions are pure.

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
    """Return the two-sided quantile of Student's t for a mean of `n` >= 2 values: 12.7 for 2."""
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(n - 1, 0.5 + confidence / 2))


Z_95 = critical_z(0.95)
"""A 95 % interval extends this many standard deviations to each side: 1.96."""
RESOLUTION_S = 1e-6
"""The shortest time that figures use, in seconds."""


_SEED = 95
_DRAWS = 1000
_MOST_BLOCKS = 64
_LEAST_DRAWN = 8
_FEW_CONFIDENCE, _FEW_LEAST_SPREAD = 0.99, 0.1
LEAST_CASES = 3
"""If either side has fewer cases than this, intervals are None."""
_BEGINS, _ENDS = 0, 1
Bounds = tuple[float, float]


class Part(NamedTuple):
    """The contribution of one or more cases to the rates of two runs.

    Attributes:
        n_slow: How many were completed in the slower run, usually the serial one.
        slow_s: How many seconds of that run they took.
        n_fast: How many were completed in the other run.
        fast_s: How many seconds of the other run they took.
    """

    n_slow: int
    slow_s: float
    n_fast: int
    fast_s: float


def speedup(parts: Sequence[Part] | NDArray[np.float64]) -> float | None:
    """Divide the fast run's cases per second by the slow run's; None if one completed no case."""
    whole = _rows(parts, len(Part._fields)).sum(axis=0)
    if not (whole > 0).all():
        return None
    n_slow, slow_s, n_fast, fast_s = map(float, whole)
    return (n_fast / fast_s) / (n_slow / slow_s)


def _rows(
    values: Sequence[Part] | Sequence[Span] | NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """Return parts or spans as rows of `width` numbers; the result may be empty."""
    import numpy as np  # noqa: PLC0415

    return np.asarray(values, dtype=float).reshape(-1, width)


def speedup_interval(
    strata: Sequence[Sequence[Part] | NDArray[np.float64]],
) -> tuple[float, float] | None:
    """Return the speed-up's interval at 95 %, or at 99 % with 3 to 7 cases; None with fewer than 3.

    With at least 8 cases, it is a bootstrap over cases. Each case of a stratum is drawn together
    with its contributions to both rates, so cases that are in both runs must be in one stratum. A
    sample and the cases compared with it are two strata that are drawn separately. If there are
    many cases, blocks that were formed at random are drawn: the sum has the same spread, and 12,000
    cases take no longer than 64.

    The bootstrap interval should miss the true speed-up in 5 % of the samples. If the times of
    cases vary by 30 to 90 % of their mean, it misses in 5 to 10 % with 8 cases, in 4 to 7 % with
    30, and in 4 to 5 % with 100. With 3 cases it misses in 22 %. With fewer than 8 cases it is
    therefore replaced with Student's interval of the logarithm at 99 %. Student's interval uses the
    first derivatives of the rates and a variation of at least 10 % of the mean. It is wide: a
    factor of 1.5 to 2.3 with 7 cases that vary by 30 to 60 %, and of 4 to 17 with 3 cases. It
    misses in 0 to 3 %, even if cases vary by their mean or more.

    The percentiles are further out than 2.5 and 97.5, by the ratio of Student's t to the normal
    distribution. With few cases, 2.5 and 97.5 would make the interval too narrow.

    Args:
        strata: At least one stratum, each as parts or as rows of their numbers.

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
        # Put each part in a random block; if there are few parts, each forms a block.
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

    Each moment is divided among the episodes in progress. Idle time belongs to the episode that
    begins next. Unlike the time since the last completion, a share does not depend on completions
    that coincide: four lanes in step complete four episodes together, and then none for a while.

    Args:
        spans: The episodes that share the time; without `beside`, the shares add up to the
            makespan.
        beside: Other episodes. Moments at which only these are in progress are left out, and so is
            idle time before one of these.
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
    # The total share of an episode that was in progress from the beginning.
    paid_s = np.cumsum(np.where(n_paying > 0, passed_s / np.maximum(n_paying, 1), 0.0))
    idle_s = np.where((n_paying == 0) & (n_beside == 0), passed_s, 0.0)
    begins, ends = ((kind == which) & (at < n) for which in (_BEGINS, _ENDS))
    shares = np.zeros(n)
    shares[at[begins]] = idle_s[begins] - paid_s[begins]
    shares[at[ends]] += paid_s[ends]
    return shares.tolist()


def _stretches(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the periods with an episode in progress.

    There are fewer of these than episodes, which saves time.
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
        # The effect of each case on the logarithm.
        moved = rows / every.sum(axis=0) @ (-1, 1, 1, -1)
        variance += len(rows) * float(moved.var(ddof=1))
    error = max(math.sqrt(variance), _FEW_LEAST_SPREAD / math.sqrt(least))
    reach = math.exp(critical_t(least, _FEW_CONFIDENCE) * error)
    return factor / reach, factor * reach


def _tail(n: int) -> float:
    """Return the share below the lower percentile: 0.025 for many cases, and less for few cases."""
    return _NORMAL.cdf(-((n / (n - 1)) ** 0.5) * critical_t(n, 0.95))


class SerialSample(msgspec.Struct, frozen=True):
    """The result of a serial sample.

    Attributes:
        n: How many of its episodes were completed, >= 1.
        duration_s: The time from its first send to its last end, including gaps between episodes;
            >= 1e-6.
    """

    n: int
    duration_s: float


def whole_span(measures: Measures) -> Span | None:
    """Return the span from the first send to the last end of measured episodes, or None."""
    spans = measures.spans[measures.ran]
    return Span(float(spans[:, 0].min()), float(spans[:, 1].max())) if len(spans) else None


def keep_serial_times(measures: Measures) -> None:
    """Store the serial seconds of the cases that were completed in the serial sample.

    A case's time begins at the previous completion and ends at its own, so the times add up to the
    sample's duration. They include the time of failed episodes, like the makespan of a serial run.
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
    """Return the seconds of the cases that were completed in the serial sample."""
    import numpy as np  # noqa: PLC0415

    times_s = measures["serial_s"]
    return cast("list[float]", times_s[~np.isnan(times_s)].tolist())


def serial_sample(measures: Measures) -> SerialSample | None:
    """Summarize the sample; None if the run had no sample or completed no case of it."""
    times_s = serial_times(measures)
    return SerialSample(len(times_s), max(sum(times_s), RESOLUTION_S)) if times_s else None


class PartTime(NamedTuple):
    """The time that some cases took.

    Attributes:
        measures: The cases that ran, completed or not, since all of them took time.
        shares_s: For each of them, its share of the makespan in seconds.
        seconds: The sum of the shares; >= 1e-6.
    """

    measures: Measures
    shares_s: list[float]
    seconds: float


def part_time(run: Measures, chosen: Callable[[Kind], bool]) -> PartTime | None:
    """Return the time that some cases of a run took; None if no timed case was completed.

    Args:
        run: All graded cases of the run.
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
"""The source of the serial time: the run's own service times, a serial sample, or a serial run.

Service times show the mean number of requests in flight. This mean is an upper bound for the
speed-up, because other requests in flight may make service times longer. Earlier versions called
this source "estimated", and did not say "at most".
"""
BY_OWN_TIMES = ("at_most", "estimated")


class Latency(msgspec.Struct, frozen=True):
    """A distribution in seconds: from an episode's first lease to its end, or to a first token."""

    n: int
    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float


class MeanScore(msgspec.Struct, frozen=True):
    """The mean of a score over the `n` graded cases with this score.

    Attributes:
        interval: Bounds at 95 %, from `repetitions.mean_interval_of`; None if not computed.
    """

    mean: float
    n: int
    interval: tuple[float, float] | None = None


class RunStatistics(msgspec.Struct, frozen=True):
    """Counts, speed and scores of one run.

    Attributes:
        n_planned: How many cases were planned.
        n_final: How many cases have a final grade.
        counts: The number of these cases for each outcome, including outcomes without cases;
            `scored` is missing from runs of earlier versions.
        n_graded: How many cases are `solved`, `partial`, `unsolved` or `scored`.
        coverage: n_graded / (n_planned - skipped); 1 if there was nothing to measure.
        n_timed: How many completed episodes are included in the next five figures. These exclude
            the serial sample and an earlier, interrupted part of the run. If it is 0, the five
            figures are None.
        makespan_s: The time from the first send to the end of the last episode; for only some cases
            of a run, the share that `part_time` assigns to them.
        throughput: Completed episodes per second of the makespan.
        serial_s: The seconds that the same episodes take one after the other.
        basis: The source of `serial_s`.
        speedup: serial_s / makespan_s: cases per second, relative to one case at a time.
        latency: The latency of these episodes.
        n_attempts: The requests of the graded episodes. Like the tokens and the cost, they exclude
            roles.
        tokens_in: The input tokens of these requests; None if no answer contained a number.
        scores: The mean of each score over the graded cases, by name.
        speedup_interval: The bounds of `speedup` at 95 % or more, see `speedup_interval`; None for
            mode `serial`, and with fewer than 3 cases. The lower bound is 0 if `speedup` is only an
            upper bound.
        sample: The serial sample if `basis` is "sampled"; otherwise None.
        cost: The cost of the graded episodes with a known cost, in the manifest's currency; None if
            no cost is known.
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
        """How many graded cases have a grade that does not consist of scores only."""
        return self.n_graded - self.counts.get("scored", 0)

    @property
    def solved_rate(self) -> float | None:
        """The share of solved cases among the rated ones; None without rated cases."""
        return self.counts["solved"] / self.n_rated if self.n_rated else None

    @property
    def n_answered(self) -> int:
        """How many of the cases with a final grade are not sent again by a resumed run."""
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
        run: The measures of all cases of the run that have a final grade.
        n_planned: How many of the chosen cases were planned, with or without a grade.
        mode: The mode of the run; for `serial`, the makespan is the serial time.
        alone: As in `Slowdown`.
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
    """Remove the makespan and the figures that depend on it: they include clients' pauses."""
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
    # The sample's cases differ from the measured cases: the two are drawn separately.
    apart = [[Part(1, time_s, 0, 0.0) for time_s in sample_s]] if sample_s else []
    return speedup_interval([parts, *apart])


def count_outcomes(measures: Measures) -> dict[str, int]:
    """Count the cases of each outcome."""
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
    """Return the mean of each score over the cases that have it, in the order used by the tests.

    If the order differs between cases, the cases with the most scores decide. The result does not
    depend on the order of the cases.

    Args:
        measures: The measures of the cases.
        interval: Computes the interval of a mean from several parts of measures and the value of
            each measure; returns None if there is no interval.
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
    """Return the mean of at least one finite number; it is correct even if the sum overflows."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def wilson_interval(n_hits: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Return the bounds of the interval for a share of hits, in [0, 1]; (0, 1) if n is 0.

    Unlike the textbook's `p +- z * s`, it is valid for small n and near 0 and 1. `n` may be an
    effective sample size, which is not always a whole number.

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
    """Return the value that exceeds `share` of a sorted, non-empty sample, interpolated linearly.

    Source: R. J. Hyndman, Y. Fan, Sample quantiles in statistical packages, Am. Stat. 50 (1996)
        361-365, type 7.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def latency_of(durations: Iterable[float]) -> Latency | None:
    """Return the distribution of some durations in seconds; None without values."""
    ordered = sorted(durations)
    if not ordered:
        return None
    mean_s = mean_of(ordered)
    marks = (quantile(ordered, share) for share in (0.50, 0.90, 0.95, 0.99, 1.0))
    return Latency(len(ordered), mean_s, *marks)
