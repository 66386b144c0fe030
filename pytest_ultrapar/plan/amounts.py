"""Sums over a planned run, each with an interval that says how far it is known."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.critical_values import Z_95

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_ultrapar.plan.earlier import EarlierEpisode
    from pytest_ultrapar.plan.expectations import Basis, EpisodeLike, Expected

ASSUMED_WITHIN = 2.0
"""What nobody measured is given as half to twice what was supposed. No statistics: a reminder."""

MEASURED: tuple[Basis, ...] = ("case", "test")
"""What an expectation stands on when cases like it were seen."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum and its interval, `low <= value <= high`."""

    value: float
    low: float
    high: float

    def scaled(self, value: float) -> Amount:
        """The interval of something that grows in proportion to this."""
        if self.value <= 0:
            return Amount(value, value, value)
        return Amount(value, value * self.low / self.value, value * self.high / self.value)


def calls(one: EpisodeLike) -> float:
    """Requests of an episode."""
    return len(one.services_s)


def service_s(one: EpisodeLike) -> float:
    """Seconds for which an episode keeps its model at work."""
    return math.fsum(one.services_s)


def amount(
    expected: Iterable[Expected],
    earlier: Sequence[EarlierEpisode],
    value_of: Callable[[EpisodeLike], float | None],
) -> Amount | None:
    """The sum of a value over the expected episodes, with the interval of a new run's sum.

    Cases of one test function and model count as draws from one distribution, of which the earlier
    run drew `m`. The sum of `n` new draws then differs from `n` times the earlier mean with
    variance `n s**2 + n**2 s**2 / m`, `s` being the earlier ones' standard deviation; variances of
    different functions and models add up. The upper end lies 1.96 standard deviations above, the
    lower one as many times below: amounts are positive. A case that ran before repeats itself more
    closely than that, so the interval is rather too wide. It knows nothing of a provider that has
    changed. What stands on another function's cases or on hints counts with `ASSUMED_WITHIN`.

    Args:
        expected: The planned episodes.
        earlier: All episodes that expectations stand on.
        value_of: The value of one episode; None where it is not known.

    Returns:
        None where the value of any episode is not known.

    Source: prediction interval of a mean, e.g. Hahn and Meeker, "Statistical Intervals" (1991),
        section 4.7, summed over strata.
    """
    seen: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in earlier:
        value = value_of(one)
        if value is not None:
            seen[one.test, one.model].append(value)
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    assumed = 0.0
    for planned in expected:
        value = value_of(planned)
        if value is None:
            return None
        if planned.basis not in MEASURED:
            assumed += value
        else:
            measured[planned.test, planned.model].append(value)
    known = math.fsum(math.fsum(own) for own in measured.values())
    variance = math.fsum(_variance(len(own), seen[cell]) for cell, own in measured.items())
    half = Z_95 * math.sqrt(variance)
    return Amount(
        known + assumed,
        (known * known / (known + half) if known > 0 else 0.0) + assumed / ASSUMED_WITHIN,
        known + half + assumed * ASSUMED_WITHIN,
    )


def _variance(n: int, sample: Sequence[float]) -> float:
    m = len(sample)
    # One draw says nothing of the spread: it may be as large as the value.
    own = statistics.variance(sample) if m > 1 else sample[0] ** 2
    return own * (n + n * n / m)
