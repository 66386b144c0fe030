"""The share of simulated runs in which the interval of a score's mean holds the truth."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from pytest_ultrapar.analysis.equivalence import score_look
from pytest_ultrapar.analysis.measures import CaseMeasure
from pytest_ultrapar.analysis.repetitions import mean_interval_of
from pytest_ultrapar.analysis.statistics import mean_of, wilson_interval

N_RUNS = 4_000


def ratings(draw, shape):
    """Ratings from 1 to 10 by a judge."""
    return np.clip(np.round(draw.normal(7.5, 1.8, shape)), 1, 10)


SCORES = {
    "coin": lambda draw, shape: (draw.random(shape) < 0.5).astype(float),
    "four of five": lambda draw, shape: (draw.random(shape) < 0.8).astype(float),
    "ratings": ratings,
    "normal": lambda draw, shape: draw.normal(5, 1, shape),
    "even": lambda draw, shape: draw.random(shape),
    "skewed share": lambda draw, shape: draw.beta(8, 2, shape),
    "counts": lambda draw, shape: draw.poisson(3, shape).astype(float),
    "exponential": lambda draw, shape: draw.exponential(1, shape),
    "one of twenty": lambda draw, shape: (draw.random(shape) < 0.05).astype(float),
    "log-normal": lambda draw, shape: draw.lognormal(0, 1, shape),
    "most full marks": lambda draw, shape: np.where(
        draw.random(shape) < 0.75, 10.0, draw.integers(1, 10, shape)
    ),
}
OUTSIDE = {
    # Whole numbers of hits make steps: Wilson's interval holds the truth in 92.5 %.
    ("one of twenty", 20): (0.915, 0.935),
    # So few cases rarely contain the long tail.
    ("log-normal", 20): (0.91, 0.93),
    # They rarely contain rare values either, so the interval counts two more.
    ("most full marks", 20): (0.98, 0.995),
}


def held(values, truth, rows=()):
    """The share of runs, one per row, in which the interval holds the truth."""
    found = [mean_interval_of(rows, own) for own in values.tolist()]
    return sum(low <= truth <= high for low, high in found) / len(found)


@pytest.mark.slow
@pytest.mark.cpu_s(60)
@pytest.mark.parametrize("n", [20, 100, 1_000])
@pytest.mark.parametrize("kind", SCORES)
def test_interval_of_independent_cases_holds_the_mean_in_95_of_100_runs(kind, n):
    draw = np.random.default_rng([7, n])
    truth = SCORES[kind](draw, 4_000_000).mean()
    share = held(SCORES[kind](draw, (N_RUNS, n)), truth)
    print(f"{kind}, {n}: {share:.3f}")
    least, most = OUTSIDE.get((kind, n), (0.93, 0.97))
    assert least <= share <= most


@pytest.mark.slow
@pytest.mark.cpu_s(60)
@pytest.mark.parametrize("likeness", [0.2, 0.6])
@pytest.mark.parametrize(("n_cells", "n_repetitions"), [(20, 3), (100, 5)])
@pytest.mark.parametrize("by", ["cell", "cluster"])
def test_interval_of_repetitions_and_clusters_holds_the_mean_as_often(
    likeness, n_cells, n_repetitions, by
):
    draw = np.random.default_rng([11, n_cells])
    shape = N_RUNS // 2, n_cells, n_repetitions
    own = draw.normal(0, (1 - likeness) ** 0.5, shape)
    values = (draw.normal(0, likeness**0.5, (*shape[:2], 1)) + own).reshape(shape[0], -1)
    names = [f"c{at // n_repetitions}" for at in range(n_cells * n_repetitions)]
    rows = [
        CaseMeasure(
            str(at), "scored", name if by == "cell" else "", name if by == "cluster" else None
        )
        for at, name in enumerate(names)
    ]
    share = held(values, 0.0, rows)
    print(f"likeness {likeness}, {n_cells} x {n_repetitions}: {share:.3f}")
    assert 0.93 <= share <= 0.975


@pytest.mark.slow
@pytest.mark.cpu_s(60)
@pytest.mark.parametrize("likeness", [0.2, 0.6])
def test_interval_of_clusters_of_different_sizes_holds_the_mean_as_often(likeness):
    draw = np.random.default_rng(13)
    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 3
    at = np.repeat(np.arange(len(sizes)), sizes)
    values = draw.normal(0, likeness**0.5, (N_RUNS // 2, len(sizes)))[:, at]
    values += draw.normal(0, (1 - likeness) ** 0.5, values.shape)
    rows = [CaseMeasure(str(own), "scored", "", f"c{number}") for own, number in enumerate(at)]
    share = held(values, 0.0, rows)
    print(f"likeness {likeness}: {share:.3f}")
    assert 0.93 <= share <= 0.97


@pytest.mark.parametrize("by", ["", "cell"])
@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        ([1.0] * 19 + [0.2], 0, 1),
        ([0.0] * 12 + [0.9, 0.5], 0, 0.9),
        ([10.0] * 15 + [1.0], 0, 10),
        ([-1.0] * 9 + [1.0] * 3, -1, 1),
        # Three values may be on one side of the mean, so the top of the scale is unknown.
        ([0.0, 1.0, 2.0], 0, None),
    ],
)
def test_interval_stays_within_the_observed_scale(values, least, most, by):
    rows = [CaseMeasure(str(at), "scored", by and str(at // 2), None) for at in range(len(values))]
    low, high = mean_interval_of(rows, values)
    assert least <= low < sum(values) / len(values) < high
    assert high > max(values) if most is None else high <= most


@pytest.mark.parametrize("worth", [1.0, 7.0, -2.0])
@pytest.mark.parametrize("n_hits", [0, 13, 20])
def test_interval_of_two_values_is_the_interval_of_a_rate(n_hits, worth):
    values = [worth] * n_hits + [0.0] * (20 - n_hits)
    scale = worth if n_hits else 1.0
    expected = sorted(scale * bound for bound in wilson_interval(n_hits, 20))
    assert mean_interval_of((), values) == pytest.approx(expected)


@pytest.mark.parametrize("most", [1e200, 1.7e308])
def test_no_score_is_too_large_for_a_mean_and_its_comparison(most):
    values = [most, -most, most, most]
    low, high = mean_interval_of((), values)
    assert (low < high and math.isfinite(high)) == (most == 1e200)
    rows = [
        CaseMeasure(str(at), "scored", "", None, scores={"size": value})
        for at, value in enumerate(values)
    ]
    look = score_look("m", [*zip(rows, reversed(rows), strict=True)], "size")
    assert look.base == look.new == mean_of(values)
    assert b"inf" not in msgspec.json.encode(look).lower()
