from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.simulator.faults.kinds import Hang
from pytest_ultrapar.simulator.faults.script import Fault, When
from pytest_ultrapar.simulator.faults.selection import Trigger
from pytest_ultrapar.simulator.faults.timeline import Span, Timeline, Where


def trigger(when, seed=0, label="f"):
    return Trigger(Fault(label, Where(), when, Hang("start")), seed)


def takes(when, elapsed_s, requests=None):
    """The indices of the requests that the fault takes at these times."""
    fault = trigger(when)
    asked = requests or [f"q{n}" for n in range(len(elapsed_s))]
    return [n for n, t in enumerate(elapsed_s) if fault.takes(t, lambda n=n: asked[n])]


@pytest.mark.parametrize(
    ("when", "taken"),
    [
        (When(), [0, 1, 2, 3, 4, 5]),
        (When(Span(2.0)), [2, 3, 4, 5]),
        (When(Span(0.0, 2.0)), [0, 1]),
        (When(Span(2.0, 2.0)), [2, 3]),
        (When(after_requests=4), [4, 5]),
        (When(for_requests=1), [0]),
        (When(after_requests=1, for_requests=2), [1, 2]),
        (When(Span(2.0), after_requests=1, for_requests=2), [3, 4]),
    ],
)
def test_trigger_takes_requests_by_time_and_count(when, taken):
    assert takes(when, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == taken


@given(
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 100),
    times=st.lists(st.integers(0, 9), max_size=40),
    shuffle=st.integers(0, 100),
)
def test_share_depends_on_the_request_and_its_repetition_but_not_on_the_order(
    share, seed, times, shuffle
):
    def drawn(order):
        fault = trigger(When(share=share), seed)
        found: dict[int, list[bool]] = {}
        for n in order:
            found.setdefault(n, []).append(fault.takes(0.0, lambda n=n: f"q{n}"))
        return found

    other = random.Random(shuffle).sample(times, len(times))
    assert drawn(times) == drawn(other)


def test_share_is_near_its_value_and_another_seed_takes_other_requests():
    n = 4000
    first = takes(When(share=0.05), [0.0] * n)
    # Binomial with a standard deviation of 13.8: one seed in 10**9 fails, and this one passes.
    assert abs(len(first) - 200) < 83
    fault = trigger(When(share=0.05), seed=1)
    other = [k for k in range(n) if fault.takes(0.0, lambda k=k: f"q{k}")]
    assert set(first) != set(other)


def test_retry_of_a_taken_request_is_drawn_again():
    fault = trigger(When(share=0.5))
    assert {fault.takes(0.0, lambda: "same") for _ in range(64)} == {True, False}


def test_request_is_not_named_if_nothing_is_drawn():
    def never() -> str:
        raise AssertionError

    assert trigger(When()).takes(0.0, never)


def test_timeline_begins_with_the_first_request_unless_it_began_before():
    lazy = Timeline()
    assert lazy.elapsed_s(100.0) == 0.0
    lazy.begin(100.0)
    lazy.begin(101.0)
    assert lazy.elapsed_s(103.0) == 3.0
    eager = Timeline(50.0)
    eager.begin(100.0)
    assert eager.elapsed_s(103.0) == 53.0
