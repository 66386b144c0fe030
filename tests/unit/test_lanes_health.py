from __future__ import annotations

import math
import random

import pytest

from pytest_ultrapar.lanes.health import LaneHealth, Out, Pause
from tests.property.broker_judge import lane


def health(seed: int = 0) -> LaneHealth:
    return LaneHealth(lane("dep-1", "key0"), random.Random(seed))


@pytest.mark.parametrize("seed", range(20))
def test_rate_pauses_for_the_time_asked_and_up_to_a_tenth_more(seed):
    pause = health(seed).decide("rate", 4.0, 10.0, 11.0)
    assert isinstance(pause, Pause)
    assert 15.0 <= pause.until_s <= 15.4
    assert "asked for 4 s" in pause.reason
    assert "p/dep-1/key0" in pause.reason


def test_rate_pauses_differ_between_lanes():
    assert len({health(seed).decide("rate", 4.0, 0.0, 0.0).until_s for seed in range(20)}) == 20


def test_rate_cuts_a_long_wait_to_two_minutes_and_says_so():
    pause = health().decide("rate", 3600.0, 0.0, 0.0)
    assert 120.0 <= pause.until_s <= 132.0
    assert "asked for 3600 s, cut to the 120 s allowed" in pause.reason


@pytest.mark.parametrize("retry_after_s", [None, 0.0, -5.0, math.nan, math.inf])
def test_rate_without_a_usable_time_backs_off_with_full_jitter(retry_after_s):
    pauses = [health(seed).decide("rate", retry_after_s, 0.0, 0.0).until_s for seed in range(200)]
    assert all(0.0 <= until_s <= 1.0 for until_s in pauses)
    assert min(pauses) < 0.1
    assert max(pauses) > 0.9


def test_rate_back_off_doubles_up_to_half_a_minute():
    longest = [0.0] * 12
    for seed in range(300):
        one, now_s = health(seed), 0.0
        for n in range(12):
            pause = one.decide("rate", None, now_s, now_s)
            longest[n] = max(longest[n], pause.until_s - now_s)
            now_s = pause.until_s
    for n, ceiling_s in enumerate([1, 2, 4, 8, 16, *[30] * 7]):
        assert 0.9 * ceiling_s < longest[n] <= ceiling_s + 1e-9


def test_rate_burst_counts_once():
    one = health()
    first = one.decide("rate", None, 0.0, 1.0)
    assert all(one.decide("rate", None, 0.5, 1.0 + n / 100) is None for n in range(50))
    later = one.decide("rate", None, first.until_s, first.until_s)
    assert "2 in a row" in later.reason


def test_rate_burst_with_a_longer_wait_extends_the_pause_and_a_shorter_one_does_not():
    one = health()
    first = one.decide("rate", 10.0, 0.0, 0.0)
    assert one.decide("rate", 2.0, 0.0, 0.1) is None
    longer = one.decide("rate", 20.0, 0.0, 0.2)
    assert longer.until_s > first.until_s


@pytest.mark.parametrize("answer", ["ok", "refused", "bad_request"])
def test_an_answer_resets_the_back_off(answer):
    one, now_s = health(), 0.0
    for _ in range(5):
        now_s = one.decide("rate", None, now_s, now_s).until_s
    one.decide(answer, None, now_s, now_s)
    assert "1 in a row" in one.decide("rate", None, now_s, now_s).reason


def test_auth_takes_the_key_out():
    out = health().decide("auth", None, 0.0, 0.0)
    said = "key p/key0 was refused (401): out for the rest of the run"
    assert out == Out("key", said)


def test_quota_takes_the_key_out():
    out = health().decide("quota", 5.0, 0.0, 0.0)
    assert out.scope == "key"
    assert "no quota left" in out.reason


def test_not_found_takes_the_instance_out():
    out = health().decide("not_found", None, 0.0, 0.0)
    said = "instance p/dep-1 was not found (404): out for the rest of the run"
    assert out == Out("instance", said)


def test_connect_pauses_double_up_to_two_seconds_and_then_the_lane_is_out():
    one, now_s = health(), 100.0
    waits_s = []
    for _ in range(4):
        pause = one.decide("connect", None, now_s, now_s)
        waits_s.append(pause.until_s - now_s)
        now_s = pause.until_s
    assert waits_s == pytest.approx([0.25, 0.5, 1.0, 2.0])
    out = one.decide("connect", None, now_s, now_s)
    assert out.scope == "lane"
    assert "5 times in a row over 3.8 s" in out.reason


def test_connect_burst_counts_once():
    one = health()
    first = one.decide("connect", None, 0.0, 5.0)
    assert isinstance(first, Pause)
    assert all(one.decide("connect", None, 4.0, 5.0 + n / 10) is None for n in range(50))


@pytest.mark.parametrize(
    "sign_of_life", ["ok", "refused", "bad_request", "rate", "transport", "overload", "malformed"]
)
def test_connect_count_starts_again_after_a_sign_of_life(sign_of_life):
    one, now_s = health(), 0.0
    for _ in range(4):
        now_s = one.decide("connect", None, now_s, now_s).until_s
    pause = one.decide(sign_of_life, 0.5, now_s, now_s)
    now_s = pause.until_s if pause else now_s
    again = one.decide("connect", None, now_s, now_s)
    assert again.until_s - now_s == pytest.approx(0.25)


@pytest.mark.parametrize("outcome", ["unsent", "cancelled", "timeout", "transport", "overload"])
def test_other_outcomes_leave_the_lane_alone(outcome):
    assert health().decide(outcome, None, 0.0, 0.0) is None


def test_same_seed_gives_the_same_decisions():
    def play() -> list[Pause | Out | None]:
        one = health(7)
        return [one.decide("rate", None, now_s, now_s) for now_s in range(0, 1000, 50)]

    assert play() == play()
