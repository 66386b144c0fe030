"""Critical values, compared with scipy's."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.statistics import Z_95, critical_t, critical_z


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99, 0.998, 0.9995, 0.9999])
def test_critical_values_match_scipy(stats, confidence):
    assert critical_z(confidence) == pytest.approx(stats.norm.ppf(0.5 + confidence / 2))
    for n in (*range(2, 102), 102, 130, 500, 20_000):
        expected = stats.t.ppf(0.5 + confidence / 2, n - 1)
        assert critical_t(n, confidence) == pytest.approx(expected, rel=1e-9 if n < 102 else 1e-6)


def test_z_95_is_the_critical_value_of_95_per_cent():
    assert pytest.approx(1.959964) == Z_95
