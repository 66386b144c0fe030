"""The figures of one cell as text; `-` stands for what cannot be known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench_suites.workflow.aggregate import Tally
from bench_suites.workflow_results.bench_case import BenchCase
from pytest_ultrapar.results.statistics import wilson_interval

UNKNOWN = "-"


def tally(cases: Sequence[BenchCase]) -> Tally:
    """The counts of a cell's cases."""
    return Tally.of(case.result for case in cases)


def coverage(cases: Sequence[BenchCase]) -> float:
    """Measured / planned, without those that were skipped; 1 where nothing was to be measured."""
    n_wanted = sum(case.result.outcome != "skipped" for case in cases)
    return sum(case.measured for case in cases) / n_wanted if n_wanted else 1.0


def reachable(counts: Tally) -> str:
    """Share of the measured cases that a flawless model solves with the same luck, in percent."""
    known = [case.scores["reachable"] for case in counts.measured if "reachable" in case.scores]
    return percent(math.fsum(known) / len(known) if known else None)


def of_reachable(counts: Tally) -> str:
    """Of those cases the share that was solved, and its interval."""
    could = [case for case in counts.measured if case.scores.get("reachable")]
    return percent_of(sum(case.outcome == "solved" for case in could), len(could))


def total(counts: Tally, score: str) -> str:
    """The sum of a score that counts something."""
    return f"{math.fsum(case.scores.get(score, 0.0) for case in counts.measured):g}"


def percent(share: float | None) -> str:
    """A share in percent: `61.5`."""
    return f"{100 * share:.1f}" if share is not None else UNKNOWN


def percent_of(n_hits: int, n: int) -> str:
    """A share in percent and its 95 % Wilson interval: `61.5 (52.0-70.1)`."""
    if not n:
        return UNKNOWN
    low, high = wilson_interval(n_hits, n)
    return f"{percent(n_hits / n)} ({percent(low)}-{percent(high)})"


def efficiency(n_success: int, n: int, size_b: float | None) -> str:
    """Success % / sqrt(parameters in billions), and the same of the interval's bounds.

    Source: the original's phase 5.2.
    """
    if not n or size_b is None:
        return UNKNOWN
    shares = (n_success / n, *wilson_interval(n_success, n))
    value, low, high = (100 * each / math.sqrt(size_b) for each in shares)
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def mean(counts: Tally, score: str, digits: int = 3) -> str:
    """The mean of a score; unknown where it means nothing for any of the cases."""
    if not any(score in case.scores for case in counts.measured):
        return UNKNOWN
    return f"{counts.mean(score):.{digits}f}"
