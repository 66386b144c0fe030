"""The numbers of one run, each with the count it stands on; pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.critical_values import Z_95
from pytest_ultrapar.results.graded import GRADED
from pytest_ultrapar.results.part_time import part_time
from pytest_ultrapar.results.serial_sample import SerialSample, serial_sample, serial_times
from pytest_ultrapar.results.service import total_tokens
from pytest_ultrapar.results.speedup import Part, speedup_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_ultrapar.results.measure import CaseMeasure

Basis = Literal["estimated", "sampled", "full"]
"""Where the serial time comes from: the run's own service times, a serial sample, a serial run."""


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
    """The mean of one score over the `n` graded cases that have it."""

    mean: float
    n: int


class RunStatistics(msgspec.Struct, frozen=True):
    """Counts, speed and scores of one run.

    Attributes:
        n_planned: Cases that were to run.
        n_final: Cases with a final grade.
        counts: Of these, by outcome; all six outcomes are there.
        n_graded: `solved`, `partial` and `unsolved` together.
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
        n_attempts: Requests of the graded episodes.
        tokens_in: Sum over their answers; None when no answer said so.
        scores: Over the graded cases, by name.
        speedup_interval: Bounds of `speedup` at 95 % or more, see `speedup_interval`; None for mode
            `serial`, and with fewer than 3 cases.
        sample: The serial sample that `basis` "sampled" stands on; None without one.
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


def run_statistics(
    run: Sequence[CaseMeasure],
    *,
    n_planned: int,
    mode: str,
    chosen: Callable[[CaseMeasure], bool] = lambda _: True,
) -> RunStatistics:
    """The statistics of a run, or of some of its cases.

    Args:
        run: One for each case of the run with a final grade.
        n_planned: Chosen cases that were to run, those without a grade among them.
        mode: The mode that ran; the makespan of `serial` is its own serial time.
        chosen: Which cases.
    """
    measures = [each for each in run if chosen(each)]
    counts = count_outcomes(measures)
    n_graded = sum(counts[outcome] for outcome in GRADED)
    took = part_time(run, chosen)
    timed = [each for each in measures if each.timed]
    makespan_s = took.seconds if took is not None else None
    sample = serial_sample(measures)
    basis, serial_s = _serial(timed, makespan_s, sample, mode)
    return RunStatistics(
        n_planned=n_planned,
        n_final=len(measures),
        counts=counts,
        n_graded=n_graded,
        coverage=_coverage(n_graded, n_planned - counts["skipped"]),
        n_timed=len(timed),
        makespan_s=makespan_s,
        throughput=len(timed) / makespan_s if makespan_s is not None else None,
        serial_s=serial_s,
        basis=basis,
        speedup=serial_s / makespan_s if serial_s is not None and makespan_s else None,
        latency=latency_of([each.duration_s for each in timed]),
        n_attempts=sum(each.n_attempts for each in measures),
        tokens_in=total_tokens(each.tokens_in for each in measures),
        tokens_out=total_tokens(each.tokens_out for each in measures),
        scores=mean_scores(measures),
        speedup_interval=_interval(took.shares, serial_times(measures))
        if took is not None and basis != "full"
        else None,
        sample=sample,
    )


def _serial(
    timed: Sequence[CaseMeasure],
    makespan_s: float | None,
    sample: SerialSample | None,
    mode: str,
) -> tuple[Basis, float | None]:
    if mode == "serial":
        return "full", makespan_s
    if sample is not None:
        return "sampled", len(timed) * sample.duration_s / sample.n if timed else None
    return "estimated", math.fsum(each.service_s for each in timed) if timed else None


def _interval(
    shares: Sequence[tuple[CaseMeasure, float]], sample_s: Sequence[float]
) -> tuple[float, float] | None:
    parts = [
        Part(
            n_slow=int(each.completed and not sample_s),
            slow_s=each.service_s if each.completed and not sample_s else 0.0,
            n_fast=int(each.completed),
            fast_s=share_s,
        )
        for each, share_s in shares
    ]
    # A sample's cases are others than those that are measured: the two are drawn apart.
    apart = [[Part(1, time_s, 0, 0.0) for time_s in sample_s]] if sample_s else []
    return speedup_interval([parts, *apart])


def count_outcomes(measures: Iterable[CaseMeasure]) -> dict[str, int]:
    """How many cases have each outcome; all six are there."""
    counts = Counter(each.outcome for each in measures)
    return {
        "solved": counts["solved"],
        "partial": counts["partial"],
        "unsolved": counts["unsolved"],
        "infra": counts["infra"],
        "error": counts["error"],
        "skipped": counts["skipped"],
    }


def mean_scores(measures: Iterable[CaseMeasure]) -> dict[str, MeanScore]:
    """The mean of each score over the cases that have it, in the order in which tests gave them.

    Where cases differ, those with the most scores say the order; it does not depend on the order of
    the cases.
    """
    values: dict[str, list[float]] = {}
    given: set[tuple[str, ...]] = set()
    for each in measures:
        given.add(tuple(each.scores))
        for name, score in each.scores.items():
            values.setdefault(name, []).append(score)
    ordered = sorted(given, key=lambda names: (-len(names), names))
    return {
        name: MeanScore(math.fsum(values[name]) / len(values[name]), len(values[name]))
        for name in dict.fromkeys(name for names in ordered for name in names)
    }


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


def _coverage(n_graded: int, n_wanted: int) -> float:
    return n_graded / n_wanted if n_wanted > 0 else 1.0


def latency_of(durations: Iterable[float]) -> Latency | None:
    """How seconds are distributed; None without any."""
    ordered = sorted(durations)
    if not ordered:
        return None
    return Latency(
        n=len(ordered),
        mean_s=math.fsum(ordered) / len(ordered),
        p50_s=quantile(ordered, 0.50),
        p90_s=quantile(ordered, 0.90),
        p95_s=quantile(ordered, 0.95),
        p99_s=quantile(ordered, 0.99),
        max_s=ordered[-1],
    )
