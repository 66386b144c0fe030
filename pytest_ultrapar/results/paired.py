"""Statistics of the same cases in two runs: intervals of what changed, and whether chance does it.

Pure and plain Python: 20,000 pairs take some 20 ms, and neither numpy nor scipy is loaded.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.critical_values import critical_t, critical_z
from pytest_ultrapar.results.statistics import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIDENCE = 0.95
MOST_RESAMPLED = 100
"""Up to so many values a mean is resampled as well; of more, its distribution is normal enough."""
N_RESAMPLES = 1000
"""Takes 25 ms for 100 values."""

_normal = NormalDist()
_NEGLIGIBLE = 1e-18


class Interval(NamedTuple):
    """Bounds of an unknown number; infinite where too little is known."""

    low: float
    high: float

    @property
    def known(self) -> tuple[float | None, float | None]:
        """Its bounds for tables and files: None where there is none."""
        return (
            self.low if math.isfinite(self.low) else None,
            self.high if math.isfinite(self.high) else None,
        )


NOTHING_KNOWN = Interval(-math.inf, math.inf)


def possible_range(values: Iterable[float]) -> Interval:
    """The least and the greatest value that a case may have, as far as the values tell: with 0.

    Where all are 0 their scale is unknown, and most scores lie between 0 and 1.
    """
    seen = [0.0, *values]
    low, high = min(seen), max(seen)
    return Interval(low, high) if low < high else Interval(0.0, 1.0)


def possible_change(values: Iterable[float]) -> Interval:
    """How far a case's value may move at most, down and up, as far as the values tell."""
    low, high = possible_range(values)
    return Interval(low - high, high - low)


def mean_interval(
    values: Sequence[float], *, ends: Interval | None = None, confidence: float = CONFIDENCE
) -> Interval:
    """Where the mean lies that the values are a sample of.

    Student's interval; for up to `MOST_RESAMPLED` values also the bootstrap's (BCa), and of the two
    the wider at each end: Student's does not see a skew, the bootstrap is too narrow for few
    values. The resampling is seeded, so the same values give the same interval.

    Grades repeat, and where more than half of the values are one and the same, the spread of those
    seen says little of the rare others: no failure among 60 cases is no proof that none of 30
    fails. With `ends` one more value at either end is counted then, and Student's interval is that
    of all. Without it the interval missed a drop by 1 in 3 % of the cases in 70 of 100 samples of
    10, and in 40 of 100 of 30.

    Args:
        values: Differences of pairs, or any sample, in any order.
        ends: The least and the greatest value that there can be; None for values that never
            repeat, such as times.
        confidence: 0 to 1.

    Returns:
        Infinite for fewer than two values; without `ends` and with equal values, without width.

    Source: B. Efron, Better bootstrap confidence intervals, J. Am. Stat. Assoc. 82 (1987) 171-185;
        the values at the ends as in D. G. Bonett, R. M. Price, J. Educ. Behav. Stat. 37 (2012)
        479-488.
    """
    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return NOTHING_KNOWN
    repeats = ends is not None and 2 * max(Counter(values).values()) > len(values)
    if ends is not None and repeats:
        values = [*values, *ends]
    n = len(values)
    mean = math.fsum(values) / n
    squares = math.fsum((value - mean) ** 2 for value in values)
    if squares <= 0.0:
        return Interval(mean, mean)
    half = critical_t(n, confidence) * math.sqrt(squares / (n - 1) / n)
    if repeats or n > MOST_RESAMPLED:
        return Interval(mean - half, mean + half)
    root = math.sqrt(squares)
    acceleration = math.fsum(((value - mean) / root) ** 3 for value in values) / 6
    low, high = _resampled(values, mean, acceleration, confidence)
    return Interval(min(mean - half, low), max(mean + half, high))


def ratio_interval(
    base: Sequence[float],
    new: Sequence[float],
    *,
    ends: Interval | None = None,
    confidence: float = CONFIDENCE,
) -> tuple[float, Interval] | None:
    """The ratio of the means of pairs, new / base, and its interval; None where base has no mean.

    Args:
        base: A value of each case.
        new: Another one of the same cases.
        ends: Of their differences, where these may repeat; see `mean_interval`.
        confidence: 0 to 1.

    Source: W. G. Cochran, Sampling techniques, 3rd ed. (1977), ch. 6: the ratio's error is that of
        the mean of `new - ratio x base`.
    """
    total = math.fsum(base)
    if total <= 0.0:
        return None
    ratio = math.fsum(new) / total
    rest = [after - ratio * before for before, after in zip(base, new, strict=True)]
    low, high = mean_interval(rest, ends=ends, confidence=confidence)
    mean = total / len(base)
    return ratio, Interval(max(0.0, ratio + low / mean), ratio + high / mean)


def typical_ratio(
    base: Sequence[float], new: Sequence[float], *, confidence: float = CONFIDENCE
) -> tuple[float, Interval] | None:
    """The geometric mean of each pair's new / base, and its interval; None without a pair.

    Long and short cases count alike, so it is the sharpest look at a server that became slower by
    some factor. Pairs with a zero are left out.
    """
    logs = [
        math.log(after / before)
        for before, after in zip(base, new, strict=True)
        if before > 0 and after > 0
    ]
    if not logs:
        return None
    low, high = mean_interval(logs, confidence=confidence)
    return math.exp(math.fsum(logs) / len(logs)), Interval(math.exp(low), _exp(high))


def rate_difference(
    n: int, n_gained: int, n_lost: int, *, confidence: float = CONFIDENCE
) -> Interval:
    """Where the change of a rate lies, of `n` pairs of which some gained and some lost the mark.

    Source: D. G. Bonett, R. M. Price, Adjusted Wald confidence interval for a difference of
        binomial proportions based on paired data, J. Educ. Behav. Stat. 37 (2012) 479-488. It does
        not collapse where no pair differs.
    """
    gained, lost = (n_gained + 1) / (n + 2), (n_lost + 1) / (n + 2)
    change = gained - lost
    half = critical_z(confidence) * math.sqrt((gained + lost - change**2) / (n + 2))
    return Interval(max(-1.0, change - half), min(1.0, change + half))


def mcnemar(n_gained: int, n_lost: int) -> float:
    """How often chance alone makes gains and losses at least as uneven as this; exact, two-sided.

    Source: Q. McNemar, Note on the sampling error of the difference between correlated proportions
        or percentages, Psychometrika 12 (1947) 153-157; here with the binomial distribution itself.
    """
    n, fewer = n_gained + n_lost, min(n_gained, n_lost)
    if n == 0:
        return 1.0
    log_chance = math.lgamma(n + 1) - math.lgamma(fewer + 1) - math.lgamma(n - fewer + 1)
    chance = math.exp(log_chance - n * math.log(2))
    tail = 0.0
    while chance > _NEGLIGIBLE * tail:
        tail += chance
        if fewer == 0:
            break
        chance *= fewer / (n - fewer + 1)
        fewer -= 1
    return min(1.0, 2 * tail)


def quantile_interval(
    ordered: Sequence[float], share: float, *, confidence: float = CONFIDENCE
) -> Interval:
    """Where the quantile lies that sorted values are a sample of, whatever their distribution.

    Returns:
        Infinite above where there are too few values: nothing of 100 bounds a 99 % quantile.

    Source: H. A. David, H. N. Nagaraja, Order statistics, 3rd ed. (2003), 7.1; normal approximation
        of the ranks.
    """
    n = len(ordered)
    half = critical_z(confidence) * math.sqrt(n * share * (1 - share))
    low, high = math.floor(n * share - half), math.ceil(n * share + half) + 1
    return Interval(
        ordered[low - 1] if low >= 1 else -math.inf, ordered[high - 1] if high <= n else math.inf
    )


def difference_interval(
    base: float, base_interval: Interval, new: float, new_interval: Interval
) -> Interval:
    """Of new - base, from an interval of each as if they were independent.

    Pairs that go together make the true interval narrower, never wider.

    Source: G. Y. Zou, A. Donner, Construction of confidence limits about effect measures: a general
        approach, Stat. Med. 27 (2008) 1693-1702.
    """
    change = new - base
    below = math.hypot(new - new_interval.low, base_interval.high - base)
    above = math.hypot(new_interval.high - new, base - base_interval.low)
    return Interval(change - below, change + above)


def benjamini_hochberg(chances: Sequence[float]) -> list[float]:
    """Adjusted p-values: of those below 0.05, 5 % at most are expected to be chance.

    Source: Y. Benjamini, Y. Hochberg, Controlling the false discovery rate, J. R. Stat. Soc. B 57
        (1995) 289-300.
    """
    n = len(chances)
    adjusted = [1.0] * n
    least = 1.0
    for rank, place in reversed(list(enumerate(sorted(range(n), key=chances.__getitem__), 1))):
        least = min(least, chances[place] * n / rank)
        adjusted[place] = least
    return adjusted


def _resampled(
    values: Sequence[float], mean: float, acceleration: float, confidence: float
) -> Interval:
    rng = random.Random(0)
    n = len(values)
    means = sorted(math.fsum(rng.choices(values, k=n)) / n for _ in range(N_RESAMPLES))
    below = sum((each < mean) + (each <= mean) for each in means) / 2
    bias = _normal.inv_cdf(min(max(below / N_RESAMPLES, 0.001), 0.999))
    z = critical_z(confidence)
    return Interval(*(quantile(means, _share(bias, side, acceleration)) for side in (-z, z)))


def _share(bias: float, z: float, acceleration: float) -> float:
    moved = bias + z
    stretch = 1 - acceleration * moved
    if stretch <= 0:
        return 1.0 if moved > 0 else 0.0
    return _normal.cdf(bias + moved / stretch)


def _exp(number: float) -> float:
    return math.exp(number) if number < 700 else math.inf  # noqa: PLR2004 - floats end at e^709
