"""The numbers of one run, each with the count it stands on; pure.

The process that coordinates a run reads types from here, so scipy and numpy are loaded by the
functions that need them.
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
"""1.96: how many standard deviations a 95 % interval reaches to each side."""
RESOLUTION_S = 1e-6
"""No time is shorter than this."""


_SEED = 95
_DRAWS = 1000
_MOST_BLOCKS = 64
_LEAST_DRAWN = 8
_FEW_CONFIDENCE, _FEW_LEAST_SPREAD = 0.99, 0.1
LEAST_CASES = 3
"""With fewer on either side there is no interval."""
_BEGINS, _ENDS = 0, 1
Bounds = tuple[float, float]


class Part(NamedTuple):
    """What one case, or several, give to the two rates.

    Attributes:
        n_slow: Completed in the slower run, usually the serial one; `slow_s` seconds of it.
        n_fast: Completed in the other; `fast_s` seconds of it.
    """

    n_slow: int
    slow_s: float
    n_fast: int
    fast_s: float


def speedup(parts: Sequence[Part] | NDArray[np.float64]) -> float | None:
    """Cases per second of the fast run over those of the slow one; None where there are none."""
    whole = _rows(parts, len(Part._fields)).sum(axis=0)
    if not (whole > 0).all():
        return None
    n_slow, slow_s, n_fast, fast_s = map(float, whole)
    return (n_fast / fast_s) / (n_slow / slow_s)


def _rows(
    values: Sequence[Part] | Sequence[Span] | NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """Parts or spans of so many numbers each as rows, also where there are none."""
    import numpy as np  # noqa: PLC0415

    return np.asarray(values, dtype=float).reshape(-1, width)


def speedup_interval(
    strata: Sequence[Sequence[Part] | NDArray[np.float64]],
) -> tuple[float, float] | None:
    """Interval of the speed-up at 95 %, with 3 to 7 cases at 99 %; None with fewer than 3.

    From 8 cases on it is by bootstrap over cases.

    Cases of one stratum are drawn with what they give to both rates, so cases that were run both
    ways must stand in one; a sample and the cases compared with it are two strata, drawn
    apart. Of many cases, blocks are drawn that were put together at random: the spread of the sum
    stays the same, and 12,000 cases cost as much as 64.

    Of samples of cases whose times vary by 30 to 90 % of their mean, so many in 100 miss the true
    speed-up, where 5 should: 5 to 10 with 8 cases, 4 to 7 with 30, 4 to 5 with 100. With 3 cases 22
    would: with fewer than 8 it is Student's interval at 99 % of the logarithm instead, by the first
    derivatives of the rates, and cases count as if they varied by 10 % of their mean at least. Wide
    as that is (a factor of 1.5 to 2.3 with 7 cases that vary by 30 to 60 %, of 4 to 17 with 3), it
    misses the truth in 0 to 3 of 100, also where cases vary by their mean and more.

    The percentiles lie further out than at 2.5 and 97.5, as Student's t does from the normal
    distribution: for few cases the plain ones are too narrow.

    Args:
        strata: Each not empty; as parts, or as rows of their numbers.

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
        # Each part in one of the blocks, at random; of few parts each is a block.
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

    Every moment is divided among the episodes that are under way then; a pause in which nothing is
    under way belongs to the one that begins next. Unlike the time since the last completion it does
    not depend on how completions fall together: four lanes in step complete four at once and then
    none for a while.

    Args:
        spans: Of the episodes that pay; without others their shares add up to the makespan.
        beside: Of episodes that pay nothing. A moment at which only these are under way is left
            out, and so is a pause before one of these.
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
    # What is under way before each event, and how long it has been since the one before.
    n_paying, n_beside = (np.cumsum(step * pays) - step * pays for pays in (at < n, at >= n))
    passed_s = np.diff(times_s, prepend=times_s[:1])
    # What one episode has to pay that was under way from the beginning.
    paid_s = np.cumsum(np.where(n_paying > 0, passed_s / np.maximum(n_paying, 1), 0.0))
    idle_s = np.where((n_paying == 0) & (n_beside == 0), passed_s, 0.0)
    begins, ends = ((kind == which) & (at < n) for which in (_BEGINS, _ENDS))
    shares = np.zeros(n)
    shares[at[begins]] = idle_s[begins] - paid_s[begins]
    shares[at[ends]] += paid_s[ends]
    return shares.tolist()


def _stretches(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """When any of them was under way: few stretches of many episodes, which cost less time."""
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
        # What each case moves the logarithm by.
        moved = rows / every.sum(axis=0) @ (-1, 1, 1, -1)
        variance += len(rows) * float(moved.var(ddof=1))
    error = max(math.sqrt(variance), _FEW_LEAST_SPREAD / math.sqrt(least))
    reach = math.exp(critical_t(least, _FEW_CONFIDENCE) * error)
    return factor / reach, factor * reach


def _tail(n: int) -> float:
    """The share below the lower percentile: 0.025 for many cases, less for few."""
    return _NORMAL.cdf(-((n / (n - 1)) ** 0.5) * critical_t(n, 0.95))


class SerialSample(msgspec.Struct, frozen=True):
    """What became of a serial sample.

    Attributes:
        n: Its completed episodes, >= 1.
        duration_s: From its first send to its last end, the gaps between its episodes included;
            >= 1e-6.
    """

    n: int
    duration_s: float


def whole_span(measures: Measures) -> Span | None:
    """From the first send of all measured episodes to their last end; None without any."""
    spans = measures.spans[measures.ran]
    return Span(float(spans[:, 0].min()), float(spans[:, 1].max())) if len(spans) else None


def keep_serial_times(measures: Measures) -> None:
    """Let those that were completed in the serial sample know the seconds that they took.

    A case's seconds run from the completion before it to its own, so they add up to the sample's
    duration, and what failed episodes took is in them, as it is in the makespan of a serial run.
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
    """The seconds of those that were completed in the serial sample."""
    import numpy as np  # noqa: PLC0415

    times_s = measures["serial_s"]
    return cast("list[float]", times_s[~np.isnan(times_s)].tolist())


def serial_sample(measures: Measures) -> SerialSample | None:
    """The sample in short; None when the run had none or nothing of it was completed."""
    times_s = serial_times(measures)
    return SerialSample(len(times_s), max(sum(times_s), RESOLUTION_S)) if times_s else None


class PartTime(NamedTuple):
    """The time of some cases.

    Attributes:
        measures: Those that ran; also those that were not completed, since they took time, too.
        shares_s: Of each its seconds of the makespan.
        seconds: All of it; >= 1e-6.
    """

    measures: Measures
    shares_s: list[float]
    seconds: float


def part_time(run: Measures, chosen: Callable[[Kind], bool]) -> PartTime | None:
    """The time of some cases of a run; None where none of them was completed in what is measured.

    Args:
        run: All graded cases of the run.
        chosen: Which of them.
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
        # The makespan itself: what shares add up to may differ in the last digit.
        whole = whole_span(ran)
        assert whole is not None
        seconds = whole.end_s - whole.first_send_s
    else:
        seconds = sum(shares_s)
    return PartTime(measures, shares_s, max(seconds, RESOLUTION_S))


Basis = Literal["at_most", "estimated", "sampled", "full"]
"""Where the serial time comes from: the run's own service times, a serial sample, a serial run.

Service times say how many requests were in flight on average, and so what a speed-up is at most:
beside others they may be longer. Earlier versions called that "estimated", without "at most".
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
        interval: Bounds at 95 %, as `repetitions.mean_interval_of` has them; None without one.
    """

    mean: float
    n: int
    interval: tuple[float, float] | None = None


class RunStatistics(msgspec.Struct, frozen=True):
    """Counts, speed and scores of one run.

    Attributes:
        n_planned: Cases that were to run.
        n_final: Cases with a final grade.
        counts: Of these, by outcome; all are there, `scored` not in runs of earlier versions.
        n_graded: `solved`, `partial`, `unsolved` and `scored` together.
        coverage: n_graded / (n_planned - skipped); 1 when nothing was to be measured.
        n_timed: Completed episodes that the next five stand on: without those of an earlier,
            interrupted part of the run and of the serial sample. Where it is 0, these are None.
        makespan_s: First send to the end of the last episode; of a part of the run its share of
            that, as `part_time` has it.
        throughput: Completed episodes per second of the makespan.
        serial_s: Seconds that the same episodes take one after the other.
        basis: How `serial_s` is known.
        speedup: serial_s / makespan_s: cases per second over those of one after the other.
        latency: Of the same episodes.
        n_attempts: Requests of the graded episodes; like their tokens and cost, without roles.
        tokens_in: Sum over their answers; None when no answer said so.
        scores: Over the graded cases, by name.
        speedup_interval: Bounds of `speedup` at 95 % or more, see `speedup_interval`; None for mode
            `serial`, and with fewer than 3 cases. From 0 on where `speedup` is only what it is at
            most.
        sample: The serial sample that `basis` "sampled" stands on; None without one.
        cost: Of the graded episodes whose cost is known, in the manifest's currency; None where it
            is of none.
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
        """Graded cases of which it is said whether they are solved."""
        return self.n_graded - self.counts.get("scored", 0)

    @property
    def solved_rate(self) -> float | None:
        """Share of those; None without one."""
        return self.counts["solved"] / self.n_rated if self.n_rated else None

    @property
    def n_answered(self) -> int:
        """Cases with a final grade that a run which is resumed does not ask again."""
        return self.n_final - self.counts["infra"]

    @property
    def is_at_most(self) -> bool:
        """Whether the real speed-up may be any amount below `speedup`."""
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
        run: One for each case of the run with a final grade.
        n_planned: Chosen cases that were to run, those without a grade among them.
        mode: The mode that ran; the makespan of `serial` is its own serial time.
        alone: As `Stretch` has it.
        chosen: Which cases.
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
    """The same without what the pauses of others would be in: makespan and all that hangs on it."""
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
    # A sample's cases are others than those that are measured: the two are drawn apart.
    apart = [[Part(1, time_s, 0, 0.0) for time_s in sample_s]] if sample_s else []
    return speedup_interval([parts, *apart])


def count_outcomes(measures: Measures) -> dict[str, int]:
    """How many cases have each outcome; all are there."""
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

    Where cases differ, those with the most scores say the order; it does not depend on the order of
    the cases.

    Args:
        measures: Of the cases.
        interval: Of the mean, from measures in parts and the value of each; None: there is none.
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
    """The mean of finite numbers, one at least; also where their sum is none any more."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def wilson_interval(n_hits: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Bounds of the share of hits, in [0, 1]; (0, 1) when n is 0.

    Unlike the textbook's `p +- z * s` it holds at small n and near 0 and 1. `n` may be an effective
    sample size, which need not be a whole number.

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
    """How seconds are distributed; None without any."""
    ordered = sorted(durations)
    if not ordered:
        return None
    mean_s = mean_of(ordered)
    marks = (quantile(ordered, share) for share in (0.50, 0.90, 0.95, 0.99, 1.0))
    return Latency(len(ordered), mean_s, *marks)
