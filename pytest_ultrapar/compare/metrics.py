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
        filters: The names that its filters may have; None for any, none where it is of the run as a
            whole.
        paired: Only there with a baseline, whatever the bound.
        estimated: Whether it has an interval, in one run or beside a baseline; others are counts.
        of_speed: Whether it says how fast the run was, so that a slow client changes it.
        says: What it is, for people.
    """

    name: str
    unit: Unit
    says: str
    filters: tuple[str, ...] | None = None
    paired: bool = False
    estimated: bool = True
    of_speed: bool = False


SCORE = "score."
POINT = ".point"
"""After a metric's name: the figure itself decides, whatever its interval."""
SAME_ANSWERS = "same_answers"
COVERAGE = "coverage"
KEPT = "kept"
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
QUANTILES = {f"latency.{name}": share for name, share in _QUANTILES.items()}

METRICS = (
    Metric(
        "throughput",
        "per second",
        "cases per second of the makespan",
        filters=(),
        of_speed=True,
    ),
    Metric(
        "makespan",
        "seconds",
        "first send to the end of the last episode",
        filters=(),
        of_speed=True,
    ),
    Metric(
        "efficiency",
        "share",
        "lower bound of the makespan / makespan",
        filters=(),
        estimated=False,
        of_speed=True,
    ),
    Metric(
        "speedup",
        "factor",
        "serial time / makespan, of all cases, a model or a suite: measured of what ultrapar bench"
        " or --ultrapar-baseline made; else estimated, which rises with a slower provider and is no"
        " measure of a regression",
        filters=("model", "suite"),
        of_speed=True,
    ),
    Metric("latency.mean", "seconds", "mean time of an episode, first lease to end", of_speed=True),
    *(
        Metric(
            name, "seconds", f"{share * 100:.0f} % of the episodes take no longer", of_speed=True
        )
        for name, share in QUANTILES.items()
    ),
    Metric(
        "service",
        "seconds",
        "mean time of an episode without waiting for limits; relative to the baseline the typical"
        " ratio of each case's two times",
        of_speed=True,
    ),
    Metric("tokens_in", "number", "mean prompt tokens of an episode"),
    Metric("tokens_out", "number", "mean completion tokens of an episode"),
    Metric(COVERAGE, "share", "graded cases / cases that were to be measured", estimated=False),
    Metric(
        KEPT,
        "share",
        "cases of the baseline that the run has and did not skip / all that it did not skip",
        filters=(),
        paired=True,
        estimated=False,
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
        estimated=False,
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
