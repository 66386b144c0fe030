"""The figures that a rule can speak of; `ultrapar gate --help` lists them from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["per second", "seconds", "share", "factor", "number", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run.

    Attributes:
        name: As in rules; `score.NAME` stands for any score.
        of_run: Of the run as a whole, so that no filter makes sense.
        paired: Only there with a baseline, whatever the bound.
        says: What it is, for people.
    """

    name: str
    unit: Unit
    says: str
    of_run: bool = False
    paired: bool = False


SCORE = "score."
SAME_ANSWERS = "same_answers"
COVERAGE = "coverage"
KEPT = "kept"
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
QUANTILES = {f"latency.{name}": share for name, share in _QUANTILES.items()}

METRICS = (
    Metric("throughput", "per second", "cases per second of the makespan", of_run=True),
    Metric("makespan", "seconds", "first send to the end of the last episode", of_run=True),
    Metric("efficiency", "share", "lower bound of the makespan / makespan", of_run=True),
    Metric(
        "speedup",
        "factor",
        "serial time / makespan; where serial times are estimated (no --ultrapar-baseline) it rises"
        " with a slower provider and is no measure of a regression",
        of_run=True,
    ),
    Metric("latency.mean", "seconds", "mean time of an episode, first lease to end"),
    *(
        Metric(name, "seconds", f"{share * 100:.0f} % of the episodes take no longer")
        for name, share in QUANTILES.items()
    ),
    Metric(
        "service",
        "seconds",
        "mean time of an episode without waiting for limits; relative to the baseline the typical"
        " ratio of each case's two times",
    ),
    Metric("tokens_in", "number", "mean prompt tokens of an episode"),
    Metric("tokens_out", "number", "mean completion tokens of an episode"),
    Metric(COVERAGE, "share", "graded cases / cases that were to be measured"),
    Metric(
        KEPT,
        "share",
        "cases of the baseline that the run has and did not skip / all that it did not skip",
        of_run=True,
        paired=True,
    ),
    Metric("solved_rate", "share", "solved cases / graded cases"),
    Metric(f"{SCORE}NAME", "number", "mean of a score of the suite over graded cases"),
    Metric(
        "changed", "share", "cases whose outcome is another one than in the baseline", paired=True
    ),
    Metric(
        SAME_ANSWERS,
        "none",
        "solved rate and scores, of all models and of each, are those of the baseline",
        paired=True,
    ),
)


def find_metric(name: str) -> Metric | None:
    """The metric of that name; any name of a score will do."""
    if name.startswith(SCORE) and len(name) > len(SCORE):
        name = f"{SCORE}NAME"
    return next((metric for metric in METRICS if metric.name == name), None)


def metric_names() -> tuple[str, ...]:
    """The names that rules may use."""
    return tuple(metric.name for metric in METRICS)
