"""A share or mean of cases and how sure it is where cases depend on each other; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.critical_values import critical_t, critical_z
from pytest_ultrapar.results.paired import Interval, mean_interval
from pytest_ultrapar.results.statistics import wilson_interval

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Share:
    """A share and the bounds of its interval, all in [0, 1].

    Attributes:
        n: Cases that it is of; at least one.
    """

    n: int
    value: float
    low: float
    high: float


def clustered_share(
    hits: Iterable[tuple[Hashable, bool]], *, confidence: float = 0.95
) -> Share | None:
    """The share of hits with an interval that allows for dependence within clusters.

    It is Wilson's interval for the effective sample size: the number of cases divided by the design
    effect, which is how much more the clusters' hits scatter than those of independent cases would.
    It is as wide as Student's t says for that number of clusters. With one case in each cluster it
    is Wilson's interval itself; clusters of equal cases count once each. Where all cases agree the
    scatter says nothing, and clusters count once, too.

    Simulated with eight cases in each cluster, it held the truth in 92 to 98 % of draws from 35
    clusters on, and in 86 % at worst with 10 to 20 clusters and a share of 0.9.

    Source: J. N. K. Rao, A. J. Scott, A simple method for the analysis of clustered binary data,
        Biometrics 48 (1992) 577-585, without the factor for few clusters; E. L. Korn, B. I.
        Graubard, Confidence intervals for proportions with small expected number of positive counts
        estimated from survey data, Survey Methodology 24 (1998) 193-201, for Student's t.

    Args:
        hits: For each case its cluster, and whether it is a hit.
        confidence: Of the interval, 0 to 1.

    Returns:
        None without cases.
    """
    clusters: dict[Hashable, list[bool]] = {}
    for cluster, is_hit in hits:
        clusters.setdefault(cluster, []).append(is_hit)
    n = sum(map(len, clusters.values()))
    if not n:
        return None
    value = sum(map(sum, clusters.values())) / n
    if len(clusters) in {1, n} or value in {0.0, 1.0}:
        reach = critical_z(confidence)
        low, high = wilson_interval(value * len(clusters), len(clusters), reach)
    else:
        n_effective = _effective(clusters.values(), n, value)
        reach = critical_t(len(clusters), confidence)
        low, high = wilson_interval(value * n_effective, n_effective, reach)
    return Share(n, value, low, high)


def _effective(clusters: Iterable[Sequence[bool]], n: int, value: float) -> float:
    scatter = sum((sum(hits) - value * len(hits)) ** 2 for hits in clusters)
    # Never more than there are cases: by chance, the hits of few clusters may not scatter at all.
    return min(n, n * n * value * (1 - value) / scatter) if scatter else n


def clustered_mean_interval(
    values: Sequence[tuple[Hashable, float]],
    *,
    ends: Interval | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Where the mean lies, as `mean_interval` has it, with an allowance for dependent cases.

    With several cases in a cluster it is the wider, at each end, of the interval of all values and
    that of the clusters: each stands for how far its cases together move the mean. What clusters
    cancel out by chance makes nothing surer.

    Args:
        values: For each case its cluster and its value.
        ends: As of `mean_interval`.
        confidence: 0 to 1.
    """
    every = [value for _, value in values]
    low, high = mean_interval(every, ends=ends, confidence=confidence)
    clusters: dict[Hashable, list[float]] = {}
    for cluster, value in values:
        clusters.setdefault(cluster, []).append(value)
    if len(clusters) == len(every):
        return Interval(low, high)
    mean = math.fsum(every) / len(every)
    weight = len(clusters) / len(every)
    moved = [
        mean + weight * math.fsum(value - mean for value in those) for those in clusters.values()
    ]
    of_clusters = mean_interval(moved, ends=ends, confidence=confidence)
    return Interval(min(low, of_clusters.low), max(high, of_clusters.high))
