"""How often the interval of a score's mean holds the truth, by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_ultrapar.analysis.measures import CaseMeasure
from pytest_ultrapar.analysis.repetitions import mean_interval_of

N_RUNS = 4_000


def ratings(draw, shape):
    """From 1 to 10, as a judge gives them."""
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
}
OUTSIDE = {("four of five", 20), ("exponential", 20)}
"""Where few values tell little: whole numbers of hits make steps, and a long tail is not seen."""


def held(values, truth, rows=()):
    """In which share of runs, a row each, the interval holds the truth."""
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
    least, most = (0.92, 0.999) if (kind, n) in OUTSIDE else (0.93, 0.97)
    assert least <= share <= most


@pytest.mark.slow
@pytest.mark.cpu_s(60)
@pytest.mark.parametrize("likeness", [0.2, 0.6])
@pytest.mark.parametrize(("n_cells", "n_repetitions"), [(20, 3), (100, 5)])
@pytest.mark.parametrize("by", ["cell", "cluster"])
def test_interval_of_repetitions_and_clusters_holds_it_too(likeness, n_cells, n_repetitions, by):
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


def test_values_whose_squares_are_no_numbers_have_no_interval():
    assert mean_interval_of((), [1e200, -1e200, 3e200]).known == (None, None)
