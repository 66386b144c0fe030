from __future__ import annotations

import pytest

from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.faults.timeline import Capacity, Span, Timeline, Where
from pytest_ultrapar.simulator.limits import MovingGate, amounts_at

BASE = {"workers": 10, "qps": 4.0}


def step(from_s, for_s=None, factor=1.0, **amounts):
    return Capacity("c", ("k",), Where(), Span(from_s, for_s), factor, amounts)


@pytest.mark.parametrize(
    ("elapsed_s", "held"),
    [
        (0.0, BASE),
        (10.0, {"workers": 5, "qps": 2.0}),
        (19.9, {"workers": 5, "qps": 2.0}),
        (20.0, BASE),
        (30.0, {"workers": 20, "qps": 8.0}),
        (35.0, {"workers": 3, "qps": 8.0}),
        (1e6, {"workers": 3, "qps": 8.0}),
    ],
)
def test_limit_follows_its_entries_over_time(elapsed_s, held):
    steps = [step(10, 10, factor=0.5), step(30, factor=2.0), step(35, workers=3)]
    assert amounts_at(BASE, steps, elapsed_s) == held


def test_factor_keeps_one_seat_and_no_limit_unlimited():
    assert amounts_at({"workers": 1}, [step(0, factor=0.1)], 0.0) == {"workers": 1}
    assert amounts_at({}, [step(0, factor=0.5)], 0.0) == {}


def test_requests_in_flight_continue_when_the_cap_falls():
    gate = MovingGate(Limit("k", "key", workers=4), [step(10, 10, workers=2)], Timeline(0.0))
    for _ in range(4):
        assert gate.decide(0.0) is None
        gate.take(0.0, 0)
    assert gate.decide(10.0) is not None
    assert gate.in_flight == 4
    gate.free()
    gate.free()
    exceeded = gate.decide(11.0)
    assert exceeded is not None
    assert exceeded.allowed == 2
    gate.free()
    assert gate.decide(12.0) is None
    gate.take(12.0, 0)
    gate.free()
    assert gate.decide(20.0) is None


def test_changed_rate_counts_earlier_arrivals():
    steps = [step(10, 10, qps=2.0)]
    gate = MovingGate(Limit("k", "key", qps=8.0), steps, Timeline(0.0))
    for _ in range(9):
        assert gate.decide(9.75) is None
        gate.take(9.75, 0)
    assert gate.decide(10.0) is not None
    for _ in range(3):
        assert gate.decide(10.75) is None
        gate.take(10.75, 0)
    exceeded = gate.decide(10.75)
    assert exceeded is not None
    assert (exceeded.bound, exceeded.allowed) == ("qps", 2.0)


def test_limit_of_an_entry_applies_only_during_its_time():
    gate = MovingGate(Limit("c", "pool"), [step(5, 5, workers=0)], Timeline(0.0))
    assert gate.decide(0.0) is None
    assert gate.decide(5.0) is not None
    assert gate.decide(10.0) is None
