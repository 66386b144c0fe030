from __future__ import annotations

import pytest

from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.faults.book import left_headers
from pytest_ultrapar.simulator.limits import Gate, LimitPath
from pytest_ultrapar.simulator.wire.chat import RESOURCE
from pytest_ultrapar.simulator.wire.openai import go_duration


def told(path, now_s, values=None):
    return {
        name.decode().removeprefix("x-ratelimit-"): value.decode()
        for name, value in left_headers(path, now_s, values or {}, RESOURCE)
    }


def test_headers_tell_of_the_limit_of_which_the_smallest_part_is_left():
    path = LimitPath([Gate(Limit("a", "provider", rpm=100)), Gate(Limit("b", "key", rpm=10))])
    for n in range(4):
        assert path.admit(float(n)) is None
    assert told(path, 4.0) == {
        "limit-requests": "10",
        "remaining-requests": "6",
        "reset-requests": "24s",
    }


def test_limit_per_second_is_told_per_minute_and_tokens_beside_it():
    gate = Gate(Limit("k", "key", qps=2))
    gate.hold({"qps": 2.0, "tpm": 1000.0})
    path = LimitPath([gate])
    assert path.admit(0.0, 250) is None
    assert told(path, 0.0) == {
        "limit-requests": "120",
        "remaining-requests": "60",
        "reset-requests": "30s",
        "limit-tokens": "1000",
        "remaining-tokens": "750",
        "reset-tokens": "15s",
    }


def test_values_replace_add_and_take_away():
    path = LimitPath([Gate(Limit("k", "key", rpm=10))])
    values = {"x-ratelimit-remaining-requests": "-1", "x-ratelimit-reset-requests": "", "x-a": "1"}
    assert told(path, 0.0, values) == {
        "limit-requests": "10",
        "remaining-requests": "-1",
        "x-a": "1",
    }


def test_lane_without_rates_tells_nothing():
    assert told(LimitPath([Gate(Limit("k", "key", workers=1))]), 0.0) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0205, "21ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (60, "1m0s"),
        (66.25, "1m6.25s"),
        (3600, "1h0m0s"),
    ],
)
def test_duration_is_in_gos_notation(seconds, text):
    assert go_duration(seconds) == text
