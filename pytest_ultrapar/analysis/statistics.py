"""The statistics of one run, each with its number of cases; pure.

The coordinator imports types from this module, so only the functions that need scipy and numpy load
them.
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
    """Two-sided quantile of the standard normal: 1.96 for 0.95."""
    return _NORMAL.inv_cdf(0.5 + confidence / 2)


def critical_t(n: int, confidence: float) -> float:
    """Two-sided quantile of Student's t for a mean of `n` >= 2 values: 12.7 for 2 at 0.95."""
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(n - 1, 0.5 + confidence / 2))


Z_95 = critical_z(0.95)
"""1.96: a 95 % interval extends this many standard deviations to each side."""
RESOLUTION_S = 1e-6
"""The shortest time, in seconds."""


_SEED = 95
_DRAWS = 1000
_MOST_BLOCKS = 64
_LEAST_DRAWN = 8
_FEW_CONFIDENCE, _FEW_LEAST_SPREAD = 0.99, 0.1
LEAST_CASES = 3
"""With fewer cases on either side, intervals are None."""
_BEGINS, _ENDS = 0, 1
Bounds = tuple[float, float]


class Part(NamedTuple):
    """The contribution of one or more cases to the two rates.

    Attributes:
        n_slow: Cases completed in the slower run, usually the serial one.
        slow_s: Their seconds of that run.
        n_fast: Cases completed in the other run.
        fast_s: Their seconds of the other run.
    """

    n_slow: int
    slow_s: float
    n_fast: int
    fast_s: float


def speedup(parts: Sequence[Part] | NDArray[np.float64]) -> float | None:
    """The fast run's cases per second over the slow run's; None if one completed no case."""
    whole = _rows(parts, len(Part._fields)).sum(axis=0)
    if not (whole > 0).all():
        return None
    n_slow, slow_s, n_fast, fast_s = map(float, whole)
    return (n_fast / fast_s) / (n_slow / slow_s)


def _rows(
    values: Sequence[Part] | Sequence[Span] | NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """Parts or spans as rows of `width` numbers, possibly no rows."""
    import numpy as np  # noqa: PLC0415

    return np.asarray(values, dtype=float).reshape(-1, width)


def speedup_interval(
    strata: Sequence[Sequence[Part] | NDArray[np.float64]],
) -> tuple[float, float] | None:
    """Interval of the speed-up at 95 %, with 3 to 7 cases at 99 %; None with fewer than 3.

    From 8 cases on it is a bootstrap over cases. It draws each case of a stratum together with its
    contributions to both rates, so cases that ran both ways must be in one stratum. A sample and
    the cases compared with it are two strata, drawn separately. Many cases are drawn as blocks that
    were formed at random: the spread of the sum stays the same, and 12,000 cases cost as much as
    64.

    If the times of cases vary by 30 to 90 % of their mean, the bootstrap interval should miss the
    true speed-up in 5 % of the samples. It misses in 5 to 10 % with 8 cases, 4 to 7 % with 30, 4 to
    5 % with 100. With 3 cases it misses in 22 %, so with fewer than 8 cases Student's interval of
    the logarithm at 99 % replaces it. This interval uses the first derivatives of the rates, and a
    variation of at least 10 % of the mean. It is wide: a factor of 1.5 to 2.3 with 7 cases that
    vary by 30 to 60 %, and 4 to 17 with 3 cases. It misses in 0 to 3 %, even if cases vary by their
    mean and more.

    The percentiles are further out than 2.5 and 97.5, by the ratio of Student's t to the normal
    distribution: with few cases the plain ones are too narrow.

    Args:
        strata: Not empty, each as parts or as rows of their numbers.

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
        # Put each part in a random block; few parts each form a block.
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
    """Each episode's share of the makespan, in the order given.

    Each moment is divided among the episodes in progress. An idle time belongs to the episode that
    begins next. Unlike the time since the last completion, a share does not depend on completions
    that coincide: four lanes in step complete four episodes together, and then none for a while.

    Args:
        spans: The episodes to divide among; without `beside` the shares add up to the makespan.
        beside: Other episodes. Moments with only these in progress are left out, and so are idle
            times before one of these.
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
    # Episodes in progress before each event, and the time since the previous event.
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
    """The times with an episode in progress: few stretches instead of many episodes save time."""
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
    """The share below the lower percentile: 0.025 for many cases, less for few."""
    return _NORMAL.cdf(-((n / (n - 1)) ** 0.5) * critical_t(n, 0.95))


class SerialSample(msgspec.Struct, frozen=True):
    """The result of a serial sample.

    Attributes:
        n: Its completed episodes, >= 1.
        duration_s: From its first send to its last end, including gaps between episodes; >= 1e-6.
    """

    n: int
    duration_s: float


def whole_span(measures: Measures) -> Span | None:
    """From the first send to the last end of all measured episodes; None without episodes."""
    spans = measures.spans[measures.ran]
    return Span(float(spans[:, 0].min()), float(spans[:, 1].max())) if len(spans) else None


def keep_serial_times(measures: Measures) -> None:
    """Store the serial seconds of the cases that were completed in the serial sample.

    A case's seconds run from the previous completion to its own, so they add up to the sample's
    duration. They include the time of failed episodes, like the makespan of a serial run.
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
    """The seconds of the cases that were completed in the serial sample."""
    import numpy as np  # noqa: PLC0415

    times_s = measures["serial_s"]
    return cast("list[float]", times_s[~np.isnan(times_s)].tolist())


def serial_sample(measures: Measures) -> SerialSample | None:
    """A summary of the sample; None if the run had no sample or completed no case of it."""
    times_s = serial_times(measures)
    return SerialSample(len(times_s), max(sum(times_s), RESOLUTION_S)) if times_s else None


class PartTime(NamedTuple):
    """The time of some cases.

    Attributes:
        measures: The cases that ran, completed or not, since all of them took time.
        shares_s: The seconds of the makespan of each.
        seconds: Their sum; >= 1e-6.
    """

    measures: Measures
    shares_s: list[float]
    seconds: float


def part_time(run: Measures, chosen: Callable[[Kind], bool]) -> PartTime | None:
    """The time of some cases of a run; None if no timed case was completed.

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
        # The makespan itself: the sum of the shares may differ in the last digit.
        whole = whole_span(ran)
        assert whole is not None
        seconds = whole.end_s - whole.first_send_s
    else:
        seconds = sum(shares_s)
    return PartTime(measures, shares_s, max(seconds, RESOLUTION_S))


Basis = Literal["at_most", "estimated", "sampled", "full"]
"""The source of the serial time: the run's own service times, a serial sample, or a serial run.

Service times give the mean number of requests in flight, and so an upper bound of the speed-up:
other requests in flight may make them longer. Earlier versions called this "estimated", without "at
most".
"""
BY_OWN_TIMES = ("at_most", "estimated")


class Latency(msgspec.Struct, frozen=True):
    """Distribution of seconds: of an episode from first lease to end, or to a first token."""

    n: int
    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float


class MeanScore(msgspec.Struct, frozen=True):
    """The mean of one score over the `n` graded cases that have it.

    Attributes:
        interval: Bounds at 95 %, from `repetitions.mean_interval_of`; None if not computed.
    """

    mean: float
    n: int
    interval: tuple[float, float] | None = None


class RunStatistics(msgspec.Struct, frozen=True):
    """Counts, speed and scores of one run.

    Attributes:
        n_planned: Planned cases.
        n_final: Cases with a final grade.
        counts: These cases by outcome, with all outcomes; runs of earlier versions lack `scored`.
        n_graded: `solved`, `partial`, `unsolved` and `scored` together.
        coverage: n_graded / (n_planned - skipped); 1 if there was nothing to measure.
        n_timed: The completed episodes behind the next five figures. They exclude the serial sample
            and an earlier, interrupted part of the run. If it is 0, the five are None.
        makespan_s: First send to the end of the last episode; for some cases of a run, their share
            of the makespan from `part_time`.
        throughput: Completed episodes per second of the makespan.
        serial_s: Seconds that the same episodes take one after the other.
        basis: The source of `serial_s`.
        speedup: serial_s / makespan_s: cases per second, relative to one case at a time.
        latency: Their latency.
        n_attempts: Requests of the graded episodes; like their tokens and cost, without roles.
        tokens_in: Sum over their answers; None if no answer gave a number.
        scores: Over the graded cases, by name.
        speedup_interval: Bounds of `speedup` at 95 % or more, see `speedup_interval`; None for mode
            `serial`, and with fewer than 3 cases. The lower bound is 0 if `speedup` is only an
            upper bound.
        sample: The serial sample if `basis` is "sampled"; else None.
        cost: Cost of the graded episodes for which it is known, in the manifest's currency; None if
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
        """Graded cases whose grade is more than scores."""
        return self.n_graded - self.counts.get("scored", 0)

    @property
    def solved_rate(self) -> float | None:
        """The share of solved cases among the rated ones; None without rated cases."""
        return self.counts["solved"] / self.n_rated if self.n_rated else None

    @property
    def n_answered(self) -> int:
        """Cases with a final grade that a resumed run does not send again."""
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
    """The statistics of a run, or of some of its cases.

    Args:
        run: The measures of each case of the run with a final grade.
        n_planned: The chosen planned cases, with or without a grade.
        mode: The mode that ran; for `serial`, the makespan is the serial time.
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
    """The same statistics without makespan and dependent figures, which include others' pauses."""
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
    """The number of cases for every outcome."""
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
    """The mean of each score over the cases that have it, in the order in which tests gave them.

    If the order differs between cases, the cases with the most scores decide. The result does not
    depend on the order of the cases.

    Args:
        measures: The measures of the cases.
        interval: Computes the interval of a mean from measures in parts and the value of each;
            returns None if there is no interval.
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
    """The mean of finite numbers, at least one; also correct if their sum overflows."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def wilson_interval(n_hits: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Bounds of the share of hits, in [0, 1]; (0, 1) if n is 0.

    Unlike the textbook's `p +- z * s`, it holds at small n and near 0 and 1. `n` may be an
    effective sample size and need not be a whole number.

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
    """The value below which `share` of a sorted, non-empty sample lies; linear between two values.

    Source: R. J. Hyndman, Y. Fan, Sample quantiles in statistical packages, Am. Stat. 50 (1996)
        361-365, type 7.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def latency_of(durations: Iterable[float]) -> Latency | None:
    """The distribution of seconds; None without values."""
    ordered = sorted(durations)
    if not ordered:
        return None
    mean_s = mean_of(ordered)
    marks = (quantile(ordered, share) for share in (0.50, 0.90, 0.95, 0.99, 1.0))
    return Latency(len(ordered), mean_s, *marks)
