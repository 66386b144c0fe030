"""The rate limiter against a brute-force sliding window."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.throttles import Pacer
from tests.property.broker_judge import check_rate

RATES = st.one_of(
    st.integers(1, 1000).map(float),
    st.floats(0.01, 50.0, allow_nan=False),
    st.sampled_from([0.1, 1 / 3, 2.5, 3.0, 7.0, 7.3, 49.0, 600.0]),
)
STARTS_S = st.sampled_from([0.0, 0.1, 1.0, 12345.678, 1e7, 1e9, -5.0])
GAPS_S = st.lists(
    st.sampled_from([0.0, 0.0, 0.0, 1e-9, 1e-3, 0.05, 0.1, 0.3, 1 / 3, 2.0]), max_size=60
)


@given(rate=RATES, window_s=st.sampled_from([1.0, 60.0]), start_s=STARTS_S, gaps_s=GAPS_S)
def test_rate_limiter_never_exceeds_the_rate(rate, window_s, start_s, gaps_s):
    limiter = Pacer(rate, window_s)
    now_s = start_s
    sends = []
    for gap_s in gaps_s + [0.0] * 200:
        now_s = limiter.ready_at_s(now_s + gap_s)
        limiter.take(now_s)
        sends.append(now_s)
    check_rate(sends, rate, window_s)


@given(rate=st.integers(1, 40), start_s=st.sampled_from([0.0, 1e6, 86_400.0 * 100]))
def test_rate_limiter_does_not_drift_over_a_long_run(rate, start_s):
    limiter = Pacer(rate, 1.0)
    sends = []
    now_s = start_s
    for _ in range(rate * 50):
        now_s = limiter.ready_at_s(now_s)
        limiter.take(now_s)
        sends.append(now_s)
    check_rate(sends, rate, 1.0)
    # Exact does not mean slow: 50 windows of sends take 50 windows, to a millionth.
    assert sends[-1] - sends[0] <= (50 - 1 / rate) * (1 + 1e-6)


@given(rate=RATES, start_s=STARTS_S)
def test_rate_limiter_holds_fractional_rates_over_whole_numbers_of_sends(rate, start_s):
    limiter = Pacer(rate, 1.0)
    now_s = start_s
    sends = []
    for _ in range(30):
        now_s = limiter.ready_at_s(now_s)
        limiter.take(now_s)
        sends.append(now_s)
    for n in range(1, 30):
        apart_s = sends[n] - sends[0]
        assert apart_s >= n / rate or math.isclose(apart_s, n / rate, rel_tol=1e-12)
