"""Stretches of time in slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.occupancy import Bins

times = st.floats(-5, 15, allow_nan=False)


def test_a_stretch_falls_on_its_slices_by_length():
    bins = Bins(0.0, 4.0, 4)
    bins.add(0.5, 2.25, weight=2.0)
    bins.add(3.0, 9.0)
    bins.add(2.0, 1.0)
    assert list(bins.seconds()) == pytest.approx([1.0, 2.0, 0.5, 1.0])


@given(st.lists(st.tuples(times, times)), st.integers(1, 30))
def test_slices_add_up_to_what_lies_within(stretches, n):
    bins = Bins(0.0, 10.0, n)
    for begin, end in stretches:
        bins.add(begin, end)
    within = (max(0.0, min(end, 10.0) - max(begin, 0.0)) for begin, end in stretches)
    seconds = bins.seconds()
    assert len(seconds) == n
    assert sum(seconds) == pytest.approx(sum(within), abs=1e-6)
    assert min(seconds) >= -1e-9
