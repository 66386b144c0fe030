from __future__ import annotations

import itertools
import math

import pytest

from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.broker.adaptive.controller import LEAST_SPREAD_S, WARY, AdaptiveController
from pytest_ultrapar.broker.adaptive.observation import Observation
from pytest_ultrapar.broker.adaptive.seats import Curve, span_s
from pytest_ultrapar.broker.adaptive.server_load import ServerLoad
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback


def served(controller, granted_s, now_s, at_grant, feedback=NO_FEEDBACK):
    controller.sent(granted_s)
    controller.observe(Observation("ok", granted_s, now_s, at_grant, at_grant, feedback))


def refused(controller, granted_s, now_s, at_grant, feedback=NO_FEEDBACK):
    controller.sent(granted_s)
    controller.observe(Observation("rate", granted_s, now_s, at_grant, at_grant, feedback))


def grown(seats=40, ceiling=400):
    """A controller that grew without a refusal. Its last answer came at 10 s."""
    controller = AdaptiveController("p/k", ceiling)
    n = 0
    while controller.cap() < seats:
        served(controller, 8.0, 9.0 + n / 1000, controller.cap())
        n += 1
        # Growth does not stall, because some seats need no evidence.
        assert n < 3 * seats
    return controller


def test_sends_are_spaced_until_the_first_answer():
    controller = AdaptiveController("p/k", 3)
    assert controller.interval_s() == LEAST_SPREAD_S
    served(controller, 0.0, 1.0, 1)
    assert controller.interval_s() == 0.0


@pytest.mark.parametrize(("served_at_once", "are_apart"), [(30, True), (33, False)])
def test_sends_are_spaced_if_seats_far_exceed_the_earlier_peak(served_at_once, are_apart):
    """The spacing must end, because spaced sends never use all seats."""
    controller = grown(41)
    refused(controller, 10.0, 10.1, 41)
    served(controller, 12.0, 13.0, served_at_once)
    assert (controller.interval_s() > 0.0) == are_apart


def test_sends_are_not_spaced_after_a_pause_if_the_seats_are_proven():
    controller = grown(41)
    refused(controller, 10.0, 10.1, 41, Feedback(retry_after_s=1.0))
    served(controller, 12.0, 13.0, 1)
    assert controller.interval_s() == 0.0


def test_sends_are_spaced_after_a_back_off_until_one_is_answered():
    controller = AdaptiveController("p/k", 3)
    refused(controller, 0.0, 0.3, 3)
    assert controller.pause_s is None
    served(controller, 0.0, 0.5, 2)
    assert controller.interval_s() == WARY * 0.3
    served(controller, 2.0, 2.5, 1)
    assert controller.interval_s() < WARY * 0.3


def test_seats_double_per_round_while_they_are_in_use():
    controller = AdaptiveController("p/k", 400)
    for _ in range(10):
        served(controller, 0.0, 1.0, controller.cap())
    assert controller.cap() == 20


def test_first_refusal_cuts_seats_to_the_most_served_at_once():
    controller = grown(40)
    refused(controller, 10.0, 10.1, 40)
    assert controller.cap() == 39


def test_limit_found_by_the_first_burst_is_kept_for_a_while():
    """Each request above the limit costs a pause, so the next one must not follow soon."""
    controller = AdaptiveController("p/k", 20)
    refused(controller, 0.08, 0.1, 6, Feedback(retry_after_s=1.0))
    assert controller.cap() == 5
    for n in range(40):
        served(controller, 0.02 * n, 0.2 + 0.02 * n, 5)
    assert controller.cap() == 5
    for n in range(10):
        served(controller, 20.0, 20.2 + n / 100, 5)
    assert controller.cap() == 6


def test_answers_of_the_first_round_grow_the_seats():
    controller = AdaptiveController("p/k", 400)
    for n in range(1, 11):
        all_of_them = controller.cap()
        controller.observe(Observation("ok", 0.02 * n, 1.0 + 0.02 * n, all_of_them, at_grant=n))
    assert controller.cap() == 20


def test_answers_too_slow_for_twice_the_seats_grow_no_seats():
    controller = AdaptiveController("p/k", 400)
    for took_s, seats in ((16.0, 10), (14.0, 11)):
        controller.observe(Observation("ok", 0.0, took_s, 10, 10, timeout_s=60.0))
        assert controller.cap() == seats


def test_growth_needs_answers_to_requests_granted_near_the_present_seats():
    controller = grown(60)
    before = controller.cap()
    for at_grant, grows in ((39, False), (before, True)):
        controller.observe(Observation("ok", 9.5, 10.5, 60, at_grant))
        assert (controller.cap() > before) == grows


def test_refusal_above_the_plateau_raises_seats_to_the_number_in_flight():
    controller = grown(64)
    controller.plateau.seats = 32.0
    refused(controller, 9.0, 9.5, 44, Feedback(exceeded="in_flight"))
    assert controller.cap() == 43


def test_refusal_at_a_new_peak_limits_seats_and_below_it_limits_the_rate():
    by_seats = grown(40)
    refused(by_seats, 10.0, 10.1, 41)
    assert not by_seats.pace.is_bounded

    by_rate = grown(40)
    for n in range(30):
        served(by_rate, 10.0 + n / 30, 11.0 + n / 30, 40)
    refused(by_rate, 12.0, 12.1, 20)
    assert by_rate.interval_s() > 0.0
    assert by_rate.cap() >= 40


@pytest.mark.parametrize(
    ("exceeded", "is_paced"), [("rate", True), ("tokens", True), ("in_flight", False)]
)
def test_refusal_that_names_the_exceeded_limit_is_trusted(exceeded, is_paced):
    controller = grown(40)
    refused(controller, 10.0, 10.1, 41, Feedback(exceeded=exceeded))
    assert controller.pace.is_bounded is is_paced


def test_rate_stated_by_the_provider_is_used_without_a_search():
    controller = AdaptiveController("p/k", 400)
    served(controller, 0.0, 1.0, 1, Feedback(allowance=Allowance(requests=600.0)))
    assert 1 / controller.interval_s() == pytest.approx(10.0, rel=0.06)
    assert 1 / controller.interval_s() < 10.0


def test_stated_tokens_become_a_rate_by_the_mean_tokens_of_a_request():
    controller = AdaptiveController("p/k", 400)
    feedback = Feedback(tokens=500, allowance=Allowance(tokens=60_000.0))
    served(controller, 0.0, 1.0, 1, feedback)
    served(controller, 1.0, 2.0, 1, feedback)
    assert 1 / controller.interval_s() == pytest.approx(2.0, rel=0.06)


def test_seats_return_to_the_limit_and_then_exceed_it():
    controller = grown(40)
    refused(controller, 10.0, 10.1, 41)
    now_s, seen = 10.2, []
    for _ in range(4000):
        now_s += 0.025
        served(controller, now_s - 1.0, now_s, controller.cap())
        seen.append(controller.cap())
    assert seen[0] == 40
    assert seen == sorted(seen)
    assert seen[int(10 / 0.025)] == 40, "nothing is tried before the span is over"
    assert seen[-1] > 80, "clean rounds double the step"


def test_refusals_without_an_answer_keep_the_old_target():
    controller = grown(100)
    now_s = 10.0
    for _ in range(12):
        refused(controller, now_s, now_s + 0.05, controller.cap() + 1)
        now_s += 1.0
    low = controller.cap()
    for _ in range(400):
        now_s += 0.05
        served(controller, now_s - 0.5, now_s, controller.cap())
    assert low < 60
    assert controller.cap() >= 90, "within 20 s"


def test_many_errors_stop_all_growth():
    controller = AdaptiveController("p/k", 400)
    for n in range(60):
        controller.observe(Observation("overload", n / 10, n / 10 + 1, 10, 10))
    before = controller.cap()
    for n in range(3):
        served(controller, 6.0 + n, 7.0 + n, 10)
    assert controller.cap() == before == 10


def test_server_that_queues_gets_no_useless_requests():
    """The server answers eight per second: beyond 8 seats, answers take seats / 8 seconds."""
    controller = AdaptiveController("p/k", 512)
    now_s = 0.0
    for _ in range(4000):
        at_grant = controller.cap()
        now_s += 1 / 8
        served(controller, now_s - max(1.0, at_grant / 8), now_s, at_grant)
    assert 5 <= controller.cap() <= 16


def test_every_change_is_in_the_history_with_its_reason():
    controller = grown(20)
    refused(controller, 10.0, 10.1, 20)
    changes = controller.take_changes()
    assert (changes[0].reason, changes[0].workers) == ("start", 10)
    assert [change.workers for change in changes[1:-1]] == list(range(11, 21))
    last = changes[-1]
    assert (last.limit, last.t_s, last.workers, last.qps) == ("p/k", 10.1, 19, None)
    assert last.reason == "refused: seats"
    assert controller.take_changes() == []


def test_curve_covers_most_of_the_distance_in_half_the_span():
    curve = Curve(low=80.0, target=100.0, cut_s=5.0, span_s=20.0)
    assert curve.at(5.0) == 80.0
    assert curve.at(15.0) == pytest.approx(97.5)
    assert curve.at(25.0) == curve.at(math.inf) == 100.0
    assert curve.at(-100.0) == 80.0, "a clock that steps back lowers nothing below the cut"


def test_small_limits_and_limits_with_long_pauses_are_tested_rarely():
    assert span_s(requests_per_s=100.0) == 15.0
    assert span_s(requests_per_s=1.0) == 80.0
    assert span_s(requests_per_s=0.01) == 300.0
    assert span_s(requests_per_s=100.0, pause_s=1.0) == pytest.approx(40.8)


def test_rate_from_stated_tokens_follows_the_size_of_requests_without_refusals():
    controller = AdaptiveController("p/k", 400)
    feedback = Feedback(tokens=4000, allowance=Allowance(tokens=60_000.0))
    for n in range(3):
        served(controller, n, n + 1.0, 1, feedback)
    slow = 1 / controller.interval_s()
    for n in range(60):
        small = Feedback(tokens=200, allowance=Allowance(tokens=60_000.0))
        served(controller, 5.0 + n, 6.0 + n, 1, small)
    assert slow < 0.3
    assert 1 / controller.interval_s() > 4.0


def test_headers_are_ignored_if_several_models_share_the_limit():
    controller = AdaptiveController("p/k", 400)
    controller.heeds_headers = False
    served(controller, 0.0, 1.0, 1, Feedback(allowance=Allowance(requests=60.0)))
    assert controller.interval_s() == 0.0


def test_burst_that_exceeds_seats_and_rate_is_cut_once():
    controller = grown(40)
    controller.sent(10.0)
    controller.sent(10.0)
    for exceeded in ("in_flight", "rate"):
        feedback = Feedback(exceeded=exceeded)
        controller.observe(Observation("rate", 10.0, 10.1, 41, 41, feedback))
    assert controller.n_cuts == 1
    assert not controller.pace.is_bounded


def test_estimate_excludes_seats_above_the_limit_and_is_empty_before_a_refusal():
    controller = AdaptiveController("p/k", 400)
    assert controller.estimate() == (None, None)
    controller = grown(40)
    assert controller.estimate() == (None, None)
    refused(controller, 10.0, 10.1, 41)
    for n in range(30):
        now_s = 30.0 + n / 10
        served(controller, now_s - 1.0, now_s, controller.cap())
    assert controller.cap() > 40, "it tests more seats than the limit"
    assert controller.estimate() == (40, None)


def test_plateau_of_one_seat_is_left_when_the_server_can_do_more():
    """A server that works on one request at a time, and later on many."""
    controller = AdaptiveController("p/k", 64)
    now_s = 0.0
    for n in range(6000):
        at_grant = controller.cap()
        works_on = 1 if n < 1500 else 40
        now_s += 1.0 / min(at_grant, works_on)
        served(controller, now_s - max(1.0, at_grant / works_on), now_s, at_grant)
    assert controller.cap() >= 20


def test_longer_answers_are_not_treated_as_a_queue():
    """The server has room for 200. After 40 answers, all answers are three times as long."""
    controller = AdaptiveController("p/k", 200)
    now_s = 0.0
    for n in range(600):
        took_s, tokens_out = (1.0, 100) if n < 40 else (3.0, 300)
        now_s += took_s / controller.cap()
        feedback = Feedback(tokens=tokens_out + 50, tokens_out=tokens_out)
        served(controller, now_s - took_s, now_s, controller.cap(), feedback)
    assert controller.cap() == 200


def test_report_of_a_server_that_falls_silent_expires():
    controller = AdaptiveController("p/k", 64)
    controller.load_reported(ServerLoad(5.0, 20.0), 10, 0.0)
    low = controller.cap()
    for n in range(200):
        now_s = 1.0 + n / 10
        served(controller, now_s - 1.0, now_s, controller.cap())
    assert low <= 5
    assert controller.cap() == 64


def test_history_has_no_row_for_a_tiny_change_of_the_rate():
    controller = grown(40)
    refused(controller, 10.0, 10.1, 20, Feedback(exceeded="rate"))
    controller.take_changes()
    for n in range(400):
        now_s = 11.2 + n / 40
        served(controller, now_s - 1.0, now_s, controller.cap())
    changes = controller.take_changes()
    rates = [change.qps for change in changes if change.reason == "rate grows"]
    assert 1 <= len(rates) <= 40
    assert all(later >= before * 1.019 for before, later in itertools.pairwise(rates))


def test_doubled_seats_are_not_compared_with_old_answers():
    controller = AdaptiveController("p/k", 400)

    def answers(n, from_s, took_s, at_once):
        for at in range(n):
            granted_s = from_s + at / 10
            seen = Observation("ok", granted_s, granted_s + took_s, at_once, at_once)
            controller.plateau.doubles(seen)

    answers(100, 0.0, 1.0, 20)
    answers(1100, 10.0, 1.0, 40)
    # Tasks have become longer. Only a new trial shows how long fewer at once take now.
    answers(600, 120.0, 3.0, 40)
    assert controller.plateau.seats == 40


def test_growth_without_a_comparison_continues_by_trials():
    """No answer was measured with fewer in flight, so doubled seats have no comparison."""
    controller = AdaptiveController("p/k", 400)
    now_s = 0.0
    for n in range(4000):
        now_s += 1.0 / controller.cap()
        in_use = max(20, controller.cap())
        served(controller, now_s - 1.0, now_s, in_use)
        assert n or controller.cap() <= 20
    assert controller.cap() >= 100
