"""A share of cases and how sure it is where cases depend on each other; pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from pytest_ultrapar.results.statistics import wilson_interval


@dataclass(frozen=True, slots=True)
class Share:
    """A share and the bounds of its 95 % interval, all in [0, 1].

    Attributes:
        n: Cases that it is of; at least one.
    """

    n: int
    value: float
    low: float
    high: float


def clustered_share(hits: Iterable[tuple[Hashable, bool]]) -> Share | None:
    """The share of hits with an interval that holds whatever the dependence within clusters.

    It is Wilson's interval for the effective sample size: the number of cases divided by the design
    effect, which is how much more the clusters' hits scatter than those of independent cases would.
    With one case in each cluster it is Wilson's interval itself; clusters of equal cases count once
    each. Where all cases agree the scatter says nothing, and clusters count once, too.

    Source: J. N. K. Rao, A. J. Scott, A simple method for the analysis of clustered binary data,
        Biometrics 48 (1992) 577-585, without the factor for few clusters.

    Args:
        hits: For each case its cluster, and whether it is a hit.

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
    n_effective = _effective(list(clusters.values()), n, value)
    low, high = wilson_interval(value * n_effective, n_effective)
    return Share(n, value, low, high)


def _effective(clusters: list[list[bool]], n: int, value: float) -> float:
    if len(clusters) in {1, n} or value in {0.0, 1.0}:
        return len(clusters)
    scatter = sum((sum(hits) - value * len(hits)) ** 2 for hits in clusters)
    # Never more than there are cases: by chance, the hits of few clusters may not scatter at all.
    return min(n, n * n * value * (1 - value) / scatter) if scatter else n
