"""Speed-ups, their intervals, and each case's share of the makespan."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.statistics import Part, makespan_shares, speedup, speedup_interval
from pytest_ultrapar.store.timing import Span

moments = st.floats(0, 1e4, allow_nan=False)
spans = st.lists(st.tuples(moments, moments), min_size=1, max_size=30).map(
    lambda pairs: [Span(start, start + length) for start, length in pairs]
)


@given(spans)
def test_shares_are_not_negative_and_add_up_to_the_makespan(found):
    shares = makespan_shares(found)
    makespan_s = max(each.end_s for each in found) - min(each.first_send_s for each in found)
    assert math.fsum(shares) == pytest.approx(makespan_s, abs=1e-6)
    assert min(shares) >= -1e-6


def test_speedup_is_the_ratio_of_two_rates():
    assert speedup([Part(1, 2.0, 1, 0.5), Part(1, 4.0, 1, 1.0)]) == pytest.approx(4.0)
    # The fast run completed one more case.
    assert speedup([Part(1, 2.0, 1, 1.0), Part(0, 0.0, 1, 1.0)]) == pytest.approx(2.0)


def test_interval_of_paired_cases_is_narrower_than_of_unpaired_cases():
    draw = random.Random(1)
    times_s = [draw.lognormvariate(0, 1) for _ in range(60)]
    paired = speedup_interval([[Part(1, time_s, 1, time_s / 4) for time_s in times_s]])
    apart = speedup_interval(
        [
            [Part(1, time_s, 0, 0.0) for time_s in times_s],
            [Part(0, 0.0, 1, time_s / 4) for time_s in times_s],
        ]
    )
    assert paired == pytest.approx((4.0, 4.0))
    assert apart[0] < 3.2
    assert apart[1] > 5.0


def test_interval_needs_three_cases_on_each_side():
    many = [Part(0, 0.0, 1, 0.1)] * 50
    assert speedup_interval([[Part(1, 1.0, 0, 0.0)] * 2, many]) is None
    assert speedup_interval([[Part(1, 1.0, 0, 0.0)] * 3, many]) is not None


@pytest.mark.parametrize("n", [3, 7])
@pytest.mark.parametrize("are_paired", [True, False])
@pytest.mark.parametrize("spread", [0.3, 0.6, 1.0])
def test_interval_of_few_cases_nearly_always_covers_the_truth(n, are_paired, spread):
    draw = random.Random(f"{n} {spread}")
    hits = 0
    for _ in range(200):
        times_s = [draw.lognormvariate(0, spread) for _ in range(n)]
        if are_paired:
            ran = [time_s * draw.lognormvariate(-0.02, 0.2) / 10 for time_s in times_s]
            strata = [[Part(1, *pair) for pair in zip(times_s, [1] * n, ran, strict=True)]]
        else:
            timed = [Part(0, 0.0, 1, draw.lognormvariate(0, spread) / 10) for _ in range(40)]
            strata = [[Part(1, time_s, 0, 0.0) for time_s in times_s], timed]
        low, high = speedup_interval(strata)
        hits += low <= 10 <= high
    assert hits >= 190
