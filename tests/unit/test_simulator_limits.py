from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.limits import Gate, LimitPath


@given(
    caps=st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=1, max_size=4),
    steps=st.lists(st.booleans(), max_size=60),
)
def test_path_enforces_every_cap_and_refuses_only_at_a_cap(caps, steps):
    path = LimitPath(Gate(Limit(f"limit{i}", "key", cap)) for i, cap in enumerate(caps))
    lowest = min((cap for cap in caps if cap is not None), default=math.inf)
    in_flight = 0
    for asks in steps:
        if asks:
            exceeded = path.admit(0.0)
            assert (exceeded is None) == (in_flight < lowest)
            in_flight += exceeded is None
        elif in_flight:
            path.free()
            in_flight -= 1
        assert in_flight <= lowest


def test_refused_request_takes_no_seat_in_any_gate():
    wide = Gate(Limit("wide", "provider", workers=10, qps=10))
    path = LimitPath([wide, Gate(Limit("narrow", "key", workers=1))])
    assert path.admit(0.0) is None
    for _ in range(20):
        assert path.admit(0.0) is not None
    assert wide.in_flight == 1
    other = LimitPath([wide])
    assert [other.admit(0.0) for _ in range(9)] == [None] * 9


def test_gate_releases_a_seat_but_counts_the_arrival():
    path = LimitPath([Gate(Limit("k", "key", workers=1, qps=1))])
    for _ in range(2):
        assert path.admit(0.0) is None
        path.free()
    exceeded = path.admit(0.25)
    assert exceeded is not None
    assert (exceeded.bound, exceeded.allowed, exceeded.retry_after_s) == ("qps", 1, 0.75)


def test_rpm_is_measured_over_a_minute():
    path = LimitPath([Gate(Limit("k", "key", rpm=2))])
    assert [path.admit(t) for t in (0.0, 20.0, 40.0)] == [None] * 3
    exceeded = path.admit(59.0)
    assert exceeded is not None
    assert (exceeded.bound, exceeded.retry_after_s) == ("rpm", 1.0)
    assert path.admit(60.0) is None


def test_path_names_the_gate_with_the_longest_wait():
    path = LimitPath(
        [Gate(Limit("seats", "key", workers=1)), Gate(Limit("minute", "instance", rpm=0.5))]
    )
    assert path.admit(0.0) is None
    exceeded = path.admit(10.0)
    assert exceeded is not None
    assert (exceeded.limit, exceeded.retry_after_s) == ("minute", 50.0)


@pytest.mark.parametrize("rate", [1.0, 2.0, 10.0])
def test_evenly_spaced_sends_with_jitter_are_never_refused(rate):
    # Every second send is late by almost a full spacing, within the tolerance of one call.
    path = LimitPath([Gate(Limit("k", "key", qps=rate))])
    late_s = 0.99 / rate
    arrivals_s = sorted(n / rate + late_s * (n % 2) for n in range(100))
    assert [path.admit(t) for t in arrivals_s] == [None] * 100
