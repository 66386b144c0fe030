from __future__ import annotations

import math

import pytest

from pytest_ultrapar.broker.throttles import Pacer


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
