"""The measurement of the default gate: its power."""

from __future__ import annotations

import random

import pytest

from benchmarks.overhead.gate import chance_of_failing, stated_power
from pytest_ultrapar.analysis.paired import rate_difference

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("base", "new"), [(0.9, 0.8), (0.6, 0.6), (1.0, 0.9)])
def test_stated_chance_of_failing_matches_a_simulation(base, new):
    rng = random.Random(4)
    n, rounds = 60, 3000
    failed = 0
    for _ in range(rounds):
        pairs = [(rng.random() < base, rng.random() < new) for _ in range(n)]
        gained, lost = pairs.count((False, True)), pairs.count((True, False))
        failed += rate_difference(n, gained, lost).high < -0.02
    stated = chance_of_failing(n, base_rate=base, new_rate=new, bound=-0.02, confidence=0.95)
    assert stated == pytest.approx(failed / rounds, abs=0.03)


def test_default_rule_has_the_stated_power():
    assert stated_power() > 0.8
    assert stated_power(0.0) < 0.001
