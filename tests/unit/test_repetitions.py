"""Repetitions of a cell: estimates by brute force, and the coverage of intervals."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.paired import (
    NOTHING_KNOWN,
    Interval,
    clustered_share,
    mean_interval,
)
from pytest_ultrapar.analysis.repetitions import (
    MAJORITY,
    cell_change,
    cell_share,
    cells_of,
    interval_over_clusters,
    n_repetitions,
    pass_all,
    pass_at,
    repetitions_of,
    share_of,
)
from pytest_ultrapar.analysis.statistics import wilson_interval
from pytest_ultrapar.records import Case

DRAWS = 2000


class Row(NamedTuple):
    case_id: str
    outcome: str
    cell: str
    cluster: str | None = None


def rows(*cells, clusters=None):
    """Rows of cells. Each cell is a word of first letters of outcomes; `k` is skipped."""
    outcomes = dict(zip("spuiek", OUTCOMES, strict=True))
    return [
        Row(f"{at}/{turn}", outcomes[letter], f"cell {at}", clusters and clusters[at].format(turn))
        for at, word in enumerate(cells)
        for turn, letter in enumerate(word)
    ]


OUTCOMES = ("solved", "partial", "unsolved", "infra", "error", "skipped")


def solved(found):
    return [row.outcome == "solved" for row in found]


# -- estimates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_estimates_are_means_over_all_draws_of_k(n):
    for c in range(n + 1):
        given_outcomes = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            draws = list(combinations(given_outcomes, k))
            assert pass_at(k, n, c) == pytest.approx(sum(map(any, draws)) / len(draws))
            assert pass_all(k, n, c) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize(
    ("figure", "k"),
    [("pass@3", 3), ("pass^12", 12), (MAJORITY, 1), ("pass@0", None), ("pass@", None)],
)
def test_figure_has_a_number_of_repetitions(figure, k):
    assert repetitions_of(figure) == k


# -- counts ----------------------------------------------------------------------------------------


def test_each_cell_counts_once_and_partial_is_not_solved():
    found = rows("ssp", "uuu", "sss", "pps")
    assert cell_share("pass@1", found).value == pytest.approx((2 / 3 + 0 + 1 + 1 / 3) / 4)
    assert cell_share("pass@3", found)[:3] == (0.75, 4, 0)
    assert cell_share("pass^3", found)[:3] == (0.25, 4, 0)
    assert cell_share(MAJORITY, found)[:3] == (0.5, 4, 0)


@pytest.mark.parametrize("letter", "iek")
def test_repetition_without_a_grade_is_not_counted(letter):
    found = rows("s" + letter + "u", "sus")
    # One of two graded repetitions is solved; pass@3 counts the second cell only.
    assert cell_share("pass@2", found)[:3] == (1.0, 2, 0)
    assert cell_share("pass^2", found).value == pytest.approx((0 + 1 / 3) / 2)
    assert cell_share("pass@3", found)[:3] == (1.0, 1, 1)
    assert cell_share("pass@1", found).value == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_majority_is_more_than_half_of_the_graded_repetitions():
    found = rows("ssuu", "sssu", "ssii", "ssui", "iiii")
    # A tie does not count as a majority. Two of four graded are too few; two of three are enough.
    assert cell_share(MAJORITY, found)[:3] == (pytest.approx(2 / 3), 3, 2)


def test_run_without_enough_grades_has_no_figure():
    found = rows("sii", "uie")
    assert cell_share("pass@2", found) is None
    assert cell_change("pass@2", list(zip(found, found, strict=True))) is None


def test_cells_are_distinguished_by_test_parameters_and_model():
    def case(index, nodeid, model, repeat, params):
        return Case(index, f"{index}", nodeid, "s", model, repeat, params, index)

    cases = [
        case(0, "t.py::a[m-1-r0]", "m", 0, {"x": 1}),
        case(1, "t.py::a[m-1-r1]", "m", 1, {"x": 1}),
        case(2, "t.py::a[n-1-r0]", "n", 0, {"x": 1}),
        case(3, "t.py::b[m-1-r0]", "m", 0, {"x": 1}),
        case(4, "t.py::a[m-True-r0]", "m", 0, {"x": True}),
        # A different object with the same name has a cell of its own.
        case(5, "t.py::a[m-other-r0]", "m", 0, {"x": 1}),
        case(6, "t.py::a[m-other-r1]", "m", 1, {"x": 1}),
    ]
    found = cells_of(cases)
    assert found["0"] == found["1"] != found["5"] == found["6"]
    # Each of these cases has a cell of its own.
    assert {found[name] for name in "234"} == {""}
    assert n_repetitions(found.values()) == 2


def test_repetitions_of_a_single_cell_are_independent_draws():
    found = rows("ssssssuuuu")
    low, high = wilson_interval(6, 10)
    share = share_of(found, solved(found))
    assert (share.low, share.high) == (low, high)
    assert cell_share("pass@3", found).interval == pytest.approx(
        (1 - (1 - low) ** 3, 1 - (1 - high) ** 3)
    )
    assert cell_share("pass^3", found).interval == pytest.approx((low**3, high**3))
    # With all ten: one was solved, so any chance up to 1 is possible.
    assert cell_share("pass@10", found).interval.high == 1.0


def test_draws_of_case_clusters_give_intervals_for_small_k():
    marked = rows("ssuu", "susu", "uuus", clusters=["task{}"] * 3)
    once, twice = (cell_share(f"pass@{k}", marked) for k in (1, 2))
    values = [sum(word[at] == "s" for word in ("ssuu", "susu", "uuus")) / 3 for at in range(4)]
    assert once.value == pytest.approx(sum(values) / 4)
    low, high = mean_interval(values, ends=Interval(0.0, 1.0))
    assert once.interval.low <= max(0.0, low)
    assert once.interval.high >= min(1.0, high)
    assert 0 <= twice.interval.low < twice.value < twice.interval.high <= 1
    for figure in ("pass@3", "pass^4", MAJORITY):
        assert cell_share(figure, marked).interval == NOTHING_KNOWN
        change = cell_change(figure, list(zip(marked, marked[::-1], strict=True)))
        assert change.interval == NOTHING_KNOWN
    change = cell_change("pass@2", list(zip(marked, marked[::-1], strict=True)))
    assert change.interval.low < change.new - change.base < change.interval.high


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["pass@2", "pass^2"])
def test_interval_of_draws_covers_the_truth(figure):
    """Two questions of five kinds, eight tasks of each kind: 300 runs, 2 ms each."""
    draw, n_held = np.random.default_rng(20), 0
    levels = np.linspace(0.2, 0.8, 10).reshape(5, 2, 1)
    for _ in range(300):
        luck = draw.random((5, 1, 8))
        # Half of the results are drawn for the common task, half for each case.
        own = draw.random((5, 2, 8))
        chosen = np.where(draw.random((5, 2, 8)) < 0.5, luck, own) < levels
        found = [
            Row(f"{kind}{cell}{at}", OUTCOMES[0 if hit else 2], f"{kind}{cell}", f"{kind}{at}")
            for (kind, cell, at), hit in np.ndenumerate(chosen)
        ]
        low, high = cell_share(figure, found).interval
        truth = levels**2 if "^" in figure else 1 - (1 - levels) ** 2
        n_held += low <= truth.mean() <= high
    assert n_held / 300 >= 0.93


# -- intervals -------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("spu"), min_size=1, max_size=40), st.booleans())
def test_interval_without_repetitions_is_the_interval_of_cases(letters, marked):
    clusters = [f"{at % 3}" for at in range(len(letters))] if marked else None
    found = rows(*letters, clusters=clusters)
    keys = clusters or range(len(letters))
    assert share_of(found, solved(found)) == clustered_share(zip(keys, solved(found), strict=True))
    if not marked:
        low, high = wilson_interval(letters.count("s"), len(letters))
        share = share_of(found, solved(found))
        assert (share.low, share.high) == (low, high)


@given(st.lists(st.text("su", min_size=2, max_size=5), min_size=2, max_size=20))
def test_interval_is_at_least_as_wide_as_for_independent_cases_and_within_0_to_1(words):
    found = rows(*words)
    share = share_of(found, solved(found))
    low, high = wilson_interval(sum(solved(found)), len(found))
    assert 0 <= share.low <= low + 1e-12
    assert high - 1e-12 <= share.high <= 1
    for figure in ("pass@2", "pass^2", MAJORITY):
        cells = cell_share(figure, found)
        assert 0 <= cells.interval.low <= cells.value + 1e-12
        assert cells.value - 1e-12 <= cells.interval.high <= 1


def drawn(draw, n_cells, n_repeats, share, correlation):
    """The solved repetitions of each cell in `DRAWS` runs, beta-binomial."""
    spread = (1 - correlation) / correlation
    chances = draw.beta(share * spread, (1 - share) * spread, (DRAWS, n_cells))
    return draw.binomial(n_repeats, chances)


def held(counts, n_repeats, truth, value, interval):
    """The share of runs whose interval contains the truth; `value` is the value of a cell."""
    values = value(counts)
    kept = [
        low <= truth <= high for low, high in (interval(run.tolist(), n_repeats) for run in values)
    ]
    return sum(kept) / len(kept)


def clustered(values, n_repeats):
    cells = [(1.0, value) for value in values]
    return interval_over_clusters(cells, len(cells) * n_repeats, confidence=0.95)


def unclustered(values, n_repeats):
    n = len(values) * n_repeats
    return wilson_interval(sum(values) / len(values) * n, n)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.2, 0.5])
@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.parametrize("n_cells", [50])
def test_interval_covers_the_truth_of_correlated_repetitions(n_cells, share, correlation):
    """95 % +- 1.5 in 2,000 runs. The interval of independent cases covers far less."""
    counts = drawn(np.random.default_rng(15), n_cells, 5, share, correlation)
    given_ = (counts, 5, share, lambda counts: counts / 5)
    assert 0.935 <= held(*given_, clustered) <= 0.965
    assert held(*given_, unclustered) < 0.88


@pytest.mark.slow
def test_change_of_cells_covers_the_truth_and_is_paired():
    """Two runs of 30 cells, of which 3 in 10 get worse: 400 draws, 1 ms each."""
    draw, n_held, widths = np.random.default_rng(19), 0, []
    for _ in range(400):
        before = draw.beta(1.0, 1.0, 30)
        after = np.where(draw.random(30) < 0.3, before / 2, before)
        runs = [
            rows(*("s" * c + "u" * (5 - c) for c in draw.binomial(5, p))) for p in (before, after)
        ]
        change = cell_change("pass@1", list(zip(*runs, strict=True)))
        n_held += change.interval.low <= -0.3 * 0.25 <= change.interval.high
        widths.append(change.interval.high - change.interval.low)
    assert 0.93 <= n_held / 400 <= 0.98
    apart = clustered_width(0.5, 30)
    assert sum(widths) / len(widths) < apart


def clustered_width(share, n):
    """The width of the interval of a difference between two runs without common cells."""
    return 2 * 1.96 * math.sqrt(2 * (1 / 12 + share / 3 / 5) / n)


def test_change_counts_cells_with_enough_grades_in_both_runs():
    before, after = rows("sss", "ssu", "uui"), rows("suu", "sii", "sss")
    found = cell_change("pass@2", list(zip(before, after, strict=True)))
    # Only the second cell of the new run has fewer than two grades.
    assert (found.n, found.n_left_out) == (2, 1)
    assert (found.base, found.new) == pytest.approx(((1 + 0) / 2, (2 / 3 + 1) / 2))


def test_change_of_one_cell_is_the_change_of_its_repetitions():
    before, after = rows("sssssuuuuu"), rows("suuuuuuuuu")
    found = cell_change("pass@1", list(zip(before, after, strict=True)))
    assert (found.base, found.new, found.n) == (0.5, 0.1, 1)
    assert -1 < found.interval.low < -0.4 < found.interval.high < 0.1
