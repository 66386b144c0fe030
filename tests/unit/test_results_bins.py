"""Time spans divided into slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.occupancy import seconds_by_slice

times = st.floats(-5, 15, allow_nan=False)


def test_span_is_divided_among_its_slices_by_length():
    begins, ends, weights = [0.5, 3.0, 2.0], [2.25, 9.0, 1.0], [2.0, 1.0, 1.0]
    found = seconds_by_slice(begins, ends, weights, start_s=0.0, end_s=4.0, n=4)
    assert list(found) == pytest.approx([1.0, 2.0, 0.5, 1.0])


@given(st.lists(st.tuples(times, times), min_size=1), st.integers(1, 30))
def test_slices_add_up_to_the_time_within_the_range(stretches, n):
    found = seconds_by_slice(*zip(*stretches, strict=True), start_s=0.0, end_s=10.0, n=n)
    within = (max(0.0, min(end, 10.0) - max(begin, 0.0)) for begin, end in stretches)
    assert len(found) == n
    assert sum(found) == pytest.approx(sum(within), abs=1e-6)
    assert min(found) >= -1e-9
