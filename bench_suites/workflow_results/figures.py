"""The figures of one cell as text. `-` means unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from bench_suites.workflow.aggregate import CaseResult, Tally
from bench_suites.workflow_results.bench_case import BenchCase
from pytest_ultrapar.analysis.paired import Share, clustered_share

UNKNOWN = "-"


def tally(cases: Sequence[BenchCase]) -> Tally:
    """The counts of a cell's cases."""
    return Tally.of(case.result for case in cases)


def coverage(cases: Sequence[BenchCase]) -> float:
    """Measured / planned cases, without skipped cases; 1 if all cases were skipped."""
    n_wanted = sum(case.result.outcome != "skipped" for case in cases)
    return sum(case.measured for case in cases) / n_wanted if n_wanted else 1.0


def unscored(cases: Sequence[BenchCase]) -> str:
    """The number of measured cases without scores: refused prompts, which called no tool."""
    return str(sum("reachable" not in case.result.scores for case in _measured(cases)))


def share(cases: Sequence[BenchCase], is_hit: Callable[[CaseResult], bool]) -> Share | None:
    """The share of hits among the measured cases.

    Its interval allows for cases that share their task and tool failures.
    """
    return clustered_share((case.draw, is_hit(case.result)) for case in _measured(cases))


def reachable(cases: Sequence[BenchCase]) -> str:
    """The percentage of the scored cases that a perfect model solves despite the tool failures."""
    return percent(tally(cases).mean("reachable"))


def of_reachable(cases: Sequence[BenchCase]) -> str:
    """The share of the reachable cases that are solved, and its interval.

    A refused prompt counts as reachable and not solved, since no tool failed by chance.
    """
    could = [case for case in _measured(cases) if case.result.scores.get("reachable", 1.0)]
    return with_interval(share(could, lambda result: result.outcome == "solved"))


def count(cases: Sequence[BenchCase], score: str) -> str:
    """The number of measured cases with a score of 1; unknown if no case has the score."""
    known = [case.result.scores[score] for case in _measured(cases) if score in case.result.scores]
    return f"{math.fsum(known):g}" if known else UNKNOWN


def percent(value: float | None) -> str:
    """A share in percent: `61.5`."""
    return f"{100 * value:.1f}" if value is not None else UNKNOWN


def with_interval(found: Share | None) -> str:
    """A share in percent and its 95 % interval: `61.5 (52.0-70.1)`."""
    if found is None:
        return UNKNOWN
    return f"{percent(found.value)} ({percent(found.low)}-{percent(found.high)})"


def efficiency(success: Share | None, size_b: float | None) -> str:
    """Success % / sqrt(parameters in billions), also for the bounds of the interval.

    Source: the original's phase 5.2.
    """
    if success is None or size_b is None:
        return UNKNOWN
    shares = (success.value, success.low, success.high)
    value, low, high = (100 * each / math.sqrt(size_b) for each in shares)
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def mean(cases: Iterable[BenchCase], score: str, digits: int = 3) -> str:
    """The mean of a score over the measured cases that have it."""
    value = Tally.of(case.result for case in cases).mean(score)
    return f"{value:.{digits}f}" if value is not None else UNKNOWN


def _measured(cases: Iterable[BenchCase]) -> list[BenchCase]:
    return [case for case in cases if case.measured]
