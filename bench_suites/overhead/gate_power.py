"""How likely a gate's rule on a solved rate fails; exact, to be computed before anything runs."""

from __future__ import annotations

import math

from pytest_ultrapar.analysis.paired import rate_difference


def chance_of_failing(
    n: int, *, base_rate: float, new_rate: float, bound: float, confidence: float
) -> float:
    """The chance that `solved_rate>=bound` fails, where nothing but chance binds a case's two runs.

    That is the worst case: where some cases are hard in both runs and some easy in both, fewer
    pairs differ, and the rule sees more.

    Args:
        n: Pairs of cases.
        base_rate: Chance that a case is solved in the base run, 0 to 1.
        new_rate: The same in the run that is judged.
        bound: Of the difference, such as -0.02.
        confidence: Of the rule's interval.
    """
    gains, losses = (1 - base_rate) * new_rate, base_rate * (1 - new_rate)
    total = 0.0
    for lost in range(n + 1):
        rest = n - lost
        chance_lost = _binomial(n, lost, losses)
        gain = gains / (1 - losses)
        for gained in range(rest + 1):
            if rate_difference(n, gained, lost, confidence=confidence).high >= bound:
                break  # more gains only raise the interval
            total += chance_lost * _binomial(rest, gained, gain)
    return total


def _binomial(n: int, k: int, chance: float) -> float:
    if chance <= 0 or chance >= 1:
        return float(k == (n if chance >= 1 else 0))
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log + k * math.log(chance) + (n - k) * math.log1p(-chance))
