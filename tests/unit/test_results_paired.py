from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.paired import (
    Interval,
    benjamini_hochberg,
    difference_interval,
    mcnemar,
    mean_interval,
    quantile_interval,
    rate_difference,
    ratio_interval,
    typical_ratio,
)
from tests.examples import examples

counts = st.integers(0, 400)
numbers = st.floats(-1e6, 1e6)


@pytest.mark.slow
@given(counts, counts)
def test_mcnemar_is_the_binomial_test(stats, gained, lost):
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_of_a_huge_imbalance_is_zero():
    assert mcnemar(20_000, 0) == 0.0
    assert mcnemar(10_000, 10_000) == 1.0


@pytest.mark.parametrize("n", [2, 5, 25, 300])
def test_mean_interval_of_values_without_skew_is_students_t(stats, n):
    values = [*range(n)]
    expected = stats.t.interval(0.95, n - 1, loc=(n - 1) / 2, scale=stats.sem(values))
    assert mean_interval(values) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n", [3, 25, 300])
def test_mean_interval_of_skewed_values_uses_halls_transformation(stats, n):
    rng = random.Random(n)
    values = [rng.lognormvariate(0, 1) for _ in range(n)]
    found = mean_interval(values)
    mean, error = sum(values) / n, stats.sem(values)
    skew = sum((value - mean) ** 3 for value in values) / n / (error * n**0.5) ** 3 / n**0.5
    for bound, side in zip(found, (1, -1), strict=True):
        moved = (mean - bound) / error
        transformed = moved + skew / 3 * moved**2 + skew**2 / 27 * moved**3 + skew / 6
        assert transformed == pytest.approx(side * stats.t.ppf(0.975, n - 1), rel=1e-6)
    assert found.high - mean > mean - found.low


@pytest.mark.parametrize(
    ("draw", "mean", "n"),
    [
        (lambda rng: rng.gauss(0, 1), 0.0, 8),
        (lambda rng: rng.gauss(0, 1), 0.0, 150),
        (lambda rng: rng.expovariate(1), 1.0, 25),
        (lambda rng: rng.choice((0, 0, 0, 1)) - rng.choice((0, 0, 0, 1)), 0.0, 30),
    ],
)
def test_mean_interval_covers_the_mean_at_its_level(draw, mean, n):
    rng = random.Random(11)
    found = [mean_interval([draw(rng) for _ in range(n)]) for _ in range(120)]
    share = sum(low <= mean <= high for low, high in found) / 120
    assert 0.90 <= share <= 0.995


@examples(25)
@given(st.lists(numbers, max_size=20))
def test_mean_interval_contains_the_sample_mean_and_is_deterministic(values):
    low, high = mean_interval(values)
    if values:
        assert low <= math.fsum(values) / len(values) <= high
    assert mean_interval(values) == Interval(low, high)


@given(st.integers(1, 400), st.data())
def test_rate_difference_contains_the_estimate_and_is_symmetric(n, data):
    gained = data.draw(st.integers(0, n))
    lost = data.draw(st.integers(0, n - gained))
    low, high = rate_difference(n, gained, lost)
    assert -1 <= low < high <= 1
    assert low - 2 / (n + 2) <= (gained - lost) / n <= high + 2 / (n + 2)
    mirrored = rate_difference(n, lost, gained)
    assert (mirrored.low, mirrored.high) == (pytest.approx(-high), pytest.approx(-low))


def test_rate_difference_covers_the_truth():
    rng = random.Random(5)
    gain, loss, n = 0.05, 0.15, 120
    hits = 0
    for _ in range(1000):
        draws = [rng.random() for _ in range(n)]
        gained = sum(draw < gain for draw in draws)
        lost = sum(gain <= draw < gain + loss for draw in draws)
        low, high = rate_difference(n, gained, lost)
        hits += low <= gain - loss <= high
    assert 0.93 <= hits / 1000 <= 0.98


def test_typical_ratio_weighs_long_and_short_cases_equally():
    assert typical_ratio([1.0, 100.0], [2.0, 50.0])[0] == pytest.approx(1.0)
    assert ratio_interval([1.0, 100.0], [2.0, 50.0])[0] == pytest.approx(52 / 101)
    assert typical_ratio([0.0], [1.0]) is None
    assert ratio_interval([0.0, 0.0], [1.0, 2.0]) is None


def test_ratio_interval_covers_the_truth():
    rng = random.Random(7)
    hits = 0
    for _ in range(300):
        base = [rng.lognormvariate(0, 0.5) for _ in range(150)]
        new = [1.2 * value * rng.lognormvariate(0, 0.2) for value in base]
        _, (low, high) = ratio_interval(base, new)
        hits += low <= 1.2 * math.exp(0.02) <= high
    assert 0.90 <= hits / 300 <= 0.985


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_quantile_interval_covers_the_truth(share):
    rng = random.Random(9)
    hits = 0
    for _ in range(400):
        low, high = quantile_interval(sorted(rng.random() for _ in range(200)), share)
        hits += low <= share <= high
    assert 0.93 <= hits / 400 <= 0.995


def test_quantile_interval_is_open_if_too_few_values_are_above():
    ordered = [float(number) for number in range(100)]
    low, high = quantile_interval(ordered, 0.99)
    assert low == 96.0
    assert high == math.inf
    assert quantile_interval([1.0], 0.5) == (-math.inf, math.inf)


def test_difference_interval_adds_squares_of_uncertainties():
    found = difference_interval(10.0, Interval(9.0, 12.0), 20.0, Interval(17.0, 24.0))
    assert found.low == pytest.approx(10 - math.hypot(3, 2))
    assert found.high == pytest.approx(10 + math.hypot(4, 1))
    unbounded = difference_interval(1.0, Interval(0.5, math.inf), 2.0, Interval(1.5, 3.0))
    assert unbounded.low == -math.inf
    assert math.isfinite(unbounded.high)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_benjamini_hochberg_matches_scipy(stats, chances):
    assert benjamini_hochberg(chances) == pytest.approx(
        list(stats.false_discovery_control(chances))
    )
