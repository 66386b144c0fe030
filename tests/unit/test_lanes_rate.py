from __future__ import annotations

import math

import pytest

from pytest_ultrapar.broker.throttles import Pacer


def test_rate_limiter_allows_the_first_send_at_once():
    limiter = Pacer(2.0, 1.0)
    assert limiter.ready_at_s(-100.0) == -100.0
    assert limiter.ready_at_s(5.0) == 5.0


def test_rate_limiter_spaces_sends_by_window_over_rate():
    limiter = Pacer(4.0, 1.0)
    limiter.take(10.0)
    assert limiter.ready_at_s(10.0) == pytest.approx(10.25)
    assert limiter.ready_at_s(10.2) == pytest.approx(10.25)
    assert limiter.ready_at_s(11.0) == 11.0


def test_rate_limiter_saves_nothing_up_while_idle():
    limiter = Pacer(10.0, 1.0)
    limiter.take(0.0)
    limiter.take(100.0)
    assert limiter.ready_at_s(100.0) == pytest.approx(100.1)


def test_rate_limiter_spaces_a_rate_per_minute_too():
    limiter = Pacer(600.0, 60.0)
    limiter.take(0.0)
    assert limiter.ready_at_s(0.0) == pytest.approx(0.1)


def test_rate_limiter_takes_rates_below_one_per_window():
    limiter = Pacer(0.2, 1.0)
    limiter.take(0.0)
    assert limiter.ready_at_s(0.0) == pytest.approx(5.0)


def test_rate_limiter_refuses_a_send_before_its_time():
    limiter = Pacer(1.0, 1.0)
    limiter.take(3.0)
    with pytest.raises(ValueError, match="too early"):
        limiter.take(3.5)
    with pytest.raises(ValueError, match="too early"):
        limiter.take(2.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_rate_limiter_refuses_a_rate_that_is_none(rate):
    with pytest.raises(ValueError, match="finite and > 0"):
        Pacer(rate, 1.0)
