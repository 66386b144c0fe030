from __future__ import annotations

import math
import random

import pytest

from pytest_ultrapar.broker.health import LaneHealth, Pause, Removal, Resume
from tests.pools import lane

URL = "http://127.0.0.1:8000/v1"
WHERE = "127.0.0.1:8000/v1"
UNTRUSTED = "that failed verification, or does not use TLS (for a private CA, set ca_file)"


def health(
    seed: int = 0, *, answered: bool = False, episode_timeout_s: float = 900.0
) -> LaneHealth:
    return LaneHealth(
        lane("dep-1", "key0"),
        random.Random(seed),
        episode_timeout_s=episode_timeout_s,
        has_answered=lambda: answered,
    )


def probe_fails(one: LaneHealth, outcome: str, at_s: float) -> Pause | Removal | Resume | None:
    """Let the lane's pause end and its probe fail immediately with `outcome`."""
    assert one.wake(at_s) is None
    assert one.on_trial
    one.probe(at_s, at_s + 1000.0)
    assert not one.on_trial
    return one.decide(outcome, None, at_s, at_s)


def test_rate_pauses_for_the_requested_time_and_up_to_a_tenth_more():
    pauses = [health(seed).decide("rate", 4.0, 10.0, 11.0) for seed in range(20)]
    assert all(15.0 <= pause.until_s <= 15.4 for pause in pauses)
    assert "asked to wait 4 s" in pauses[0].reason
    assert "p/dep-1/key0" in pauses[0].reason


def test_rate_pauses_differ_between_lanes():
    assert len({health(seed).decide("rate", 4.0, 0.0, 0.0).until_s for seed in range(20)}) == 20


@pytest.mark.parametrize(("episode_timeout_s", "longest_s"), [(600.0, 600.0), (5.0, 120.0)])
def test_rate_removes_a_lane_that_asks_for_more_than_the_episode_timeout(
    episode_timeout_s, longest_s
):
    one = health(episode_timeout_s=episode_timeout_s)
    assert isinstance(one.decide("rate", longest_s, 0.0, 0.0), Pause)
    out = one.decide("rate", 86_400.0, 1e6, 1e6)
    assert out.scope == "lane"
    assert (
        f"asked to wait 86,400 s, longer than the {longest_s:g} s that a case may wait"
        in out.reason
    )


def test_endless_rate_refusals_remove_the_lane():
    one, now_s, n = health(episode_timeout_s=60.0), 0.0, 0
    while isinstance(verdict := one.decide("rate", None, now_s, now_s), Pause):
        now_s = verdict.until_s
        n += 1
    assert verdict.scope == "lane"
    assert n >= 5
    assert 120.0 <= now_s <= 150.0
    assert "nothing but refusals" in verdict.reason


def test_fifth_refusal_in_a_row_removes_the_lane_after_long_enough():
    one = health(episode_timeout_s=60.0)
    verdicts = [one.decide("rate", 30.0, at_s, at_s) for at_s in (0.0, 40.0, 80.0, 120.0, 160.0)]
    assert all(isinstance(verdict, Pause) for verdict in verdicts[:4])
    assert isinstance(verdicts[4], Removal)


@pytest.mark.parametrize("retry_after_s", [None, 0.0, -5.0, math.nan, math.inf])
def test_rate_without_a_usable_time_backs_off_with_full_jitter(retry_after_s):
    pauses = [health(seed).decide("rate", retry_after_s, 0.0, 0.0).until_s for seed in range(200)]
    assert all(0.0 <= until_s <= 1.0 for until_s in pauses)
    assert min(pauses) < 0.1
    assert max(pauses) > 0.9


def test_rate_back_off_doubles_up_to_30_s_and_to_half_the_time_of_refusals():
    longest = [0.0] * 12
    for seed in range(300):
        one, now_s = health(seed), 0.0
        for n in range(12):
            pause_s = one.decide("rate", None, now_s, now_s).until_s - now_s
            assert pause_s <= max(2.0, 1.0 + 0.5 * now_s) + 1e-9
            longest[n] = max(longest[n], pause_s)
            now_s += pause_s
    for pause_s, ceiling_s in zip(longest, [1, 2, 4, 8, 16, *[30] * 7], strict=True):
        assert pause_s <= ceiling_s + 1e-9
    assert longest[-1] > 0.9 * 30


def test_burst_of_rate_refusals_counts_once():
    one = health()
    first = one.decide("rate", None, 0.0, 1.0)
    assert all(one.decide("rate", None, 0.5, 1.0 + n / 100) is None for n in range(50))
    later = one.decide("rate", None, first.until_s, first.until_s)
    assert "in a row: 2)" in later.reason


@pytest.mark.parametrize("answer", ["ok", "refused", "too_large", "bad_request"])
def test_answer_resets_the_back_off(answer):
    one, now_s = health(), 0.0
    for _ in range(5):
        now_s = one.decide("rate", None, now_s, now_s).until_s
    one.decide(answer, None, now_s, now_s)
    assert "in a row: 1)" in one.decide("rate", None, now_s, now_s).reason


@pytest.mark.parametrize(
    ("outcome", "scope", "why"),
    [
        ("auth", "key", "key p/key0 was refused (401, or a message that rejects the key)"),
        ("forbidden", "key_model", "key p/key0 may not use the model m, or there is no such model"),
        ("not_found", "instance", "instance p/dep-1 was not found (404), or does not serve m"),
        ("tls", "instance", f"instance p/dep-1 presented a certificate {UNTRUSTED}"),
    ],
)
def test_permanent_failure_removes_the_lane_for_the_run(outcome, scope, why):
    removal = Removal(scope, f"{why}: removed for the rest of the run")
    assert health().decide(outcome, None, 0.0, 0.0) == removal


def test_missing_server_is_named_with_its_address():
    one = LaneHealth(lane("dep-1", "key0"), random.Random(1), base_url=URL)
    removal = one.decide("not_found", None, 0.0, 0.0)
    assert f"instance p/dep-1 ({WHERE}) was not found (404)" in removal.reason


def test_wait_for_a_server_names_the_address_the_longest_wait_and_the_option():
    one = LaneHealth(lane("dep-1", "key0"), random.Random(1), base_url=URL, wait_for_servers_s=90.0)
    assert not one.awaits
    one.decide("connect", None, 0.0, 0.0)
    assert one.awaits == (
        f"instance p/dep-1 ({WHERE}) cannot be reached; giving up after 90 s "
        "(--ultrapar-wait-for-servers)"
    )
    assert one.wake(1.0) is None
    one.probe(1.0, 60.0)
    one.decide("ok", None, 1.0, 2.0)
    assert not one.awaits


def test_quota_removes_the_key_and_says_when_it_returns():
    out = health().decide("quota", None, 0.0, 0.0)
    assert out.scope == "key"
    assert "no quota left" in out.reason
    day = health().decide("daily_quota", 3600.0, 0.0, 0.0)
    assert day.scope == "key_model"
    assert "has used up its daily quota for m (the server says: retry in 3,600 s)" in day.reason


def test_connect_pauses_double_up_to_1_5_s_and_then_the_lane_is_removed():
    one, now_s = health(), 100.0
    verdict = one.decide("connect", None, now_s, now_s)
    waits_s = []
    while isinstance(verdict, Pause):
        waits_s.append(verdict.until_s - now_s)
        now_s = verdict.until_s
        verdict = probe_fails(one, "connect", now_s)
    assert len(waits_s) == 4
    for waited_s, base_s in zip(waits_s, [0.25, 0.5, 1.0, 1.5], strict=True):
        assert base_s <= waited_s <= 1.1 * base_s
    assert verdict.scope == "lane"
    assert "5 times in a row over 3." in verdict.reason or "over 4." in verdict.reason


def test_connect_to_a_server_that_once_answered_is_tried_for_two_minutes():
    one, now_s = health(answered=True), 100.0
    verdict = one.decide("connect", None, now_s, now_s)
    n = 1
    while isinstance(verdict, Pause):
        assert verdict.until_s - now_s <= 2.2
        now_s = verdict.until_s
        if out := one.wake(now_s):
            verdict = out
            break
        one.probe(now_s, now_s + 1000.0)
        verdict = one.decide("connect", None, now_s, now_s)
        n += 1
    assert verdict.scope == "lane"
    assert now_s == pytest.approx(220.0)
    assert n > 50


@pytest.mark.parametrize("sign_of_life", ["ok", "refused", "too_large", "bad_request"])
def test_connect_count_starts_again_after_an_answer(sign_of_life):
    one = health()
    now_s = one.decide("connect", None, 0.0, 0.0).until_s
    for _ in range(3):
        now_s = probe_fails(one, "connect", now_s).until_s
    assert isinstance(probe_fails(one, sign_of_life, now_s), Resume)
    again = one.decide("connect", None, now_s + 1, now_s + 1)
    assert "once" in again.reason
    assert 0.25 <= again.until_s - now_s - 1 <= 0.275


@pytest.mark.parametrize("outcome", ["timeout", "transport", "overload", "malformed"])
def test_five_failures_in_a_row_open_the_breaker(outcome):
    one = health()
    assert [one.decide(outcome, None, n, n) for n in range(4)] == [None] * 4
    pause = one.decide(outcome, None, 4.0, 4.0)
    assert 9.0 <= pause.until_s <= 9.5
    assert pause.cause == "breaker"
    assert f"failed 5 times in a row ({outcome})" in pause.reason
    assert one.n_opened == 1


def probed(**facts):
    """A lane with a breaker that failures opened, and the start time of its probe."""
    one = health(**facts)
    for n in range(5):
        opened = one.decide("overload", None, n, n)
    assert one.wake(opened.until_s) is None
    one.probe(opened.until_s, opened.until_s + 500.0)
    return one, opened.until_s


def test_rate_refusal_of_a_probe_closes_the_breaker_and_pauses_for_the_rate():
    one, start_s = probed()
    pause = one.decide("rate", 2.0, start_s, start_s + 1.0)
    assert pause.cause == "rate"
    assert 3.0 <= pause.until_s - start_s <= 3.2
    assert one.wake(pause.until_s) is None
    assert not one.on_trial


def test_successful_probe_does_not_end_a_pause_that_a_refusal_asked_for():
    one, start_s = probed(answered=True)
    # An older request comes back, refused for 60 s.
    assert one.decide("rate", 60.0, 3.0, start_s + 1.0).until_s == start_s + 500.0
    pause = one.decide("ok", None, start_s, start_s + 2.0)
    assert pause.cause == "rate"
    assert start_s + 61.0 <= pause.until_s <= start_s + 67.0


@pytest.mark.parametrize("retry_after_s", [None, 1.0])
def test_pause_of_a_refused_probe_lasts_as_long_as_the_earlier_refusal_asked(retry_after_s):
    one, start_s = probed(answered=True)
    # An older request comes back, refused for 5 s, before the probe does.
    assert one.decide("rate", 5.0, 3.0, start_s + 1.0).until_s == start_s + 500.0
    pause = one.decide("rate", retry_after_s, start_s, start_s + 2.0)
    assert pause.cause == "rate"
    assert start_s + 6.0 <= pause.until_s <= start_s + 6.5
    assert one.wake(pause.until_s) is None
    assert not one.on_trial


def test_lane_without_an_answer_for_an_episode_timeout_is_removed():
    one = health(episode_timeout_s=60.0, answered=True)
    for n in range(5):
        verdict = one.decide("timeout", None, 100.0 + n, 110.0 + n)
    now_s = 114.0
    while isinstance(verdict, Pause):
        now_s = verdict.until_s
        verdict = one.wake(now_s)
        if verdict is None:
            verdict = one.probe(now_s, now_s + 1000.0)
            verdict = one.decide("timeout", None, now_s, now_s + 2.0)
            now_s += 2.0
    assert verdict.scope == "lane"
    assert "failed without an answer" in verdict.reason
    # Counted from the first request that got no answer.
    assert now_s == pytest.approx(160.0)


def test_lane_that_never_answered_is_removed_after_a_minute():
    one = health()
    for n in range(5):
        verdict = one.decide("overload", None, n, n)
    while isinstance(verdict, Pause):
        now_s = verdict.until_s
        verdict = one.wake(now_s) or probe_fails(one, "overload", now_s)
    assert verdict.scope == "lane"
    assert now_s == pytest.approx(60.0)


def test_hanging_probe_does_not_delay_the_removal_of_a_silent_lane():
    one = health(episode_timeout_s=60.0)
    for n in range(5):
        opened = one.decide("timeout", None, 100.0 + n, 110.0 + n)
    assert one.wake(opened.until_s) is None
    pause = one.probe(opened.until_s, opened.until_s + 1000.0)
    assert pause.until_s == 160.0
    assert one.wake(160.0).scope == "lane"


def test_pause_that_ends_late_but_before_the_breakers_time_continues_until_then():
    one = health(episode_timeout_s=30.0, answered=True)
    for n in range(5):
        pause = one.decide("overload", None, n, n)
    for _ in range(2):
        pause = probe_fails(one, "overload", pause.until_s)
    # Cut from about 40 s to the time at which the lane can be removed.
    assert pause.until_s == 30.0
    rest = one.wake(36.0)
    assert rest.cause == "breaker"
    assert rest.until_s > 39.0
    assert not one.on_trial
    assert one.wake(rest.until_s).scope == "lane"


def test_clock_that_jumps_removes_no_lane():
    one = health(episode_timeout_s=60.0)
    for n in range(5):
        one.decide("overload", None, n, n)
    assert one.wake(3600.0) is None
    assert one.on_trial
