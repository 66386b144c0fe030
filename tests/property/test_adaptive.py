"""Adaptive mode under random events."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.broker.adaptive.controller import AdaptiveController
from pytest_ultrapar.broker.adaptive.observation import Observation
from pytest_ultrapar.broker.protocol import Feedback

OUTCOMES = ("ok", "ok", "ok", "rate", "overload", "timeout", "transport", "cancelled", "refused")
TOLD = st.builds(
    Feedback,
    retry_after_s=st.none() | st.floats(0.001, 120),
    exceeded=st.none() | st.sampled_from(["rate", "tokens", "in_flight"]),
    tokens=st.none() | st.integers(1, 10_000),
    allowance=st.none()
    | st.builds(
        Allowance,
        requests=st.none() | st.floats(0.1, 1e6),
        tokens=st.none() | st.floats(1, 1e7),
    ),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(OUTCOMES),
        st.floats(0, 30) | st.sampled_from([0.0, 0.0, 0.0, 3600.0]),  # since the step before
        st.floats(0, 10) | st.sampled_from([0.05, 1.0]),  # duration of the request
        st.floats(0, 1),  # share of the seats in use at its grant
        TOLD,
    ),
    max_size=80,
)


def play(steps, ceiling):
    controller = AdaptiveController("p/k", ceiling)
    now_s = 0.0
    for outcome, passed_s, took_s, share, feedback in steps:
        now_s += passed_s
        at_grant = max(1, round(share * controller.cap()))
        granted_s = max(0.0, now_s - took_s)
        controller.sent(granted_s)
        before = controller.cap(), controller.pace.rate, controller.n_cuts
        seen = Observation(outcome, granted_s, now_s, at_grant, at_grant, feedback)
        controller.observe(seen)
        yield before, seen, controller


@given(STEPS, st.integers(1, 2000))
def test_adaptive_seats_stay_between_one_and_the_ceiling(steps, ceiling):
    for _, _, controller in play(steps, ceiling):
        assert 1 <= controller.cap() <= ceiling
        assert 0.0 <= controller.interval_s() <= 61.0


@given(STEPS, st.integers(1, 2000))
def test_adaptive_refusal_never_speeds_the_sends_up(steps, ceiling):
    for (_, rate, _), seen, controller in play(steps, ceiling):
        if seen.outcome == "rate" and seen.feedback.allowance is None:
            assert controller.pace.rate <= rate


@given(STEPS, st.integers(1, 2000))
@example(
    [
        ("rate", 1.0, 1.0, 0.0, Feedback()),
        ("ok", 0.0, 0.0, 0.0, Feedback()),
        ("ok", 0.0, 0.0, 0.0, Feedback()),
        ("ok", 0.0, 0.0, 1.0, Feedback()),
        ("ok", 0.0, 1.0, 0.0, Feedback()),
        ("rate", 0.0, 0.0, 0.0, Feedback()),
    ],
    4,
)
def test_adaptive_seats_grow_only_by_a_success_that_used_most_of_them(steps, ceiling):
    for (cap, rate, _), seen, controller in play(steps, ceiling):
        if controller.cap() > cap:
            assert not controller.plateau.is_reached or seen.is_served
            is_storm_over = controller.forgiven_s == seen.now_s
            if seen.is_served and not controller.plateau.is_reached and not is_storm_over:
                assert seen.at_grant >= 0.8 * cap
            if not seen.is_served:
                # The first cut of the rate returns seats that were cut to protect the rate.
                assert seen.is_limited
                assert rate == math.inf > controller.pace.rate


@given(STEPS, st.integers(1, 2000))
def test_adaptive_cuts_once_per_epoch(steps, ceiling):
    last_cut_s = -1.0
    for (_, _, n_cuts), seen, controller in play(steps, ceiling):
        if controller.n_cuts > n_cuts:
            assert controller.n_cuts == n_cuts + 1
            assert seen.outcome == "rate"
            assert seen.granted_s >= last_cut_s
            last_cut_s = seen.now_s


@given(STEPS, st.integers(1, 2000))
def test_adaptive_depends_only_on_its_inputs(steps, ceiling):
    first = [(c.cap(), c.interval_s()) for _, _, c in play(steps, ceiling)]
    second = [(c.cap(), c.interval_s()) for _, _, c in play(steps, ceiling)]
    assert first == second


@given(STEPS, st.integers(20, 2000))
def test_adaptive_after_an_idle_hour_grows_by_at_most_one_step(steps, ceiling):
    played = list(play(steps, ceiling))
    if not played or played[-1][2].plateau.is_reached:
        return
    controller = played[-1][2]
    cap, now_s = controller.cap(), 1e6
    controller.sent(now_s)
    controller.observe(Observation("ok", now_s, now_s + 1.0, cap, cap))
    is_storm_over = controller.forgiven_s == now_s + 1.0
    assert controller.cap() <= max(cap * 2, cap + 2) or is_storm_over
