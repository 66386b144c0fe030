"""The counts for `explain`: waits by cause, peaks, outcomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool


def test_wait_for_a_seat_is_named_after_the_limit_that_was_full():
    limits = (Limit("pool", "pool", 9), Limit("k0", "key", 1, qps=100))
    play = Play(pool([lane("a", "k0", "pool", "k0")], *limits))
    first, second = play.ask(), play.ask()
    play.wait(4)
    play.back(first)
    lease = play.leases[second]
    assert (lease.seat_wait_s, lease.rate_wait_s) == (4.0, 0.0)
    assert play.status("p/a/k0").waited_s == {"k0 (workers)": 4.0}


def test_wait_for_a_rate_is_named_after_the_limit_with_that_rate():
    limits = (Limit("pool", "pool", qps=1), Limit("k0", "key", 5, qps=100))
    play = Play(pool([lane("a", "k0", "pool", "k0")], *limits))
    play.ask()
    second = play.ask()
    play.wait(3)
    lease = play.leases[second]
    assert lease.seat_wait_s == 0.0
    assert lease.rate_wait_s == pytest.approx(1.0)
    assert play.status("p/a/k0").waited_s == {"pool (qps)": pytest.approx(1.0)}


def test_wait_for_a_rate_names_the_binding_one_of_several():
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 5, qps=0.5, rpm=1)))
    play.ask()
    second = play.ask()
    play.wait(70)
    assert play.leases[second].rate_wait_s == pytest.approx(60.0)
    assert set(play.status("p/a/k0").waited_s) == {"k0 (rpm)"}


def test_wait_is_split_between_seats_and_rate():
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 1, qps=0.1)))
    first, second = play.ask(), play.ask()
    play.wait(4)
    play.back(first)
    assert play.lane(second) is None
    play.wait(60)
    lease = play.leases[second]
    assert lease.seat_wait_s == pytest.approx(4.0)
    assert lease.rate_wait_s == pytest.approx(6.0)


def test_wait_for_a_pause_counts_as_rate_wait_under_its_own_name():
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 1)))
    first, second = play.ask(), play.ask()
    play.wait(1)
    play.back(first, "rate", 10.0)
    play.wait(20)
    lease = play.leases[second]
    assert lease.seat_wait_s == pytest.approx(1.0)
    assert 10.0 <= lease.rate_wait_s <= 11.0
    assert set(play.status("p/a/k0").waited_s) == {"k0 (workers)", "pause"}


def test_seat_wait_runs_only_while_every_lane_is_full():
    limits = (Limit("k0", "key", 1), Limit("k1", "key", 1, qps=0.5))
    play = Play(pool([lane("a", "k0", "k0"), lane("a", "k1", "k1")], *limits))
    first, second = play.ask(), play.ask()
    third = play.ask()
    play.wait(0.5)
    play.back(second)
    play.wait(1.0)
    play.back(first)
    lease = play.leases[third]
    assert lease.seat_wait_s == pytest.approx(0.5)
    assert lease.rate_wait_s == pytest.approx(1.0)


def test_turn_waits_for_the_seat_of_its_own_lane():
    play = Play(
        pool(
            [lane("a", "k0", "k0"), lane("a", "k1", "k1")],
            Limit("k0", "key", 1),
            Limit("k1", "key", 1),
        )
    )
    first, turn = play.ask(lane="p/a/k0"), play.ask(lane="p/a/k0")
    play.wait(2)
    play.back(first)
    assert play.leases[turn].seat_wait_s == pytest.approx(2.0)


def test_status_has_peaks_and_counts_by_outcome():
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 3)))
    asked = [play.ask() for _ in range(3)]
    for request, outcome in zip(asked, ("ok", "timeout", "rate"), strict=True):
        play.back(request, outcome, 1.0)
    play.wait(5)
    for outcome in ("refused", "unsent", "cancelled", "bad_request", "closed"):
        play.back(play.ask(), outcome)
        play.wait(1)
    status = play.status("p/a/k0")
    assert (status.peak_in_flight, status.in_flight, status.granted) == (3, 0, 8)
    assert (status.n_ok, status.n_rate_limited, status.n_failed) == (2, 1, 2)
    assert sum(status.outcomes.values()) == 8


def test_truncated_answers_are_counted_with_the_most_tokens_of_one():
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 3)))
    for feedback in (Feedback(is_cut=True), Feedback(tokens_out=9), Feedback(tokens_out=8)):
        play.answer(play.ask(), "ok", feedback)
    assert play.status("p/a/k0").cut == (1, 0)
    play.answer(play.ask(), "ok", Feedback(tokens_out=7, is_cut=True))
    assert play.status("p/a/k0").cut == (2, 7)


def test_broker_status_counts_leases_episodes_and_waiting_requests():
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 2)))
    first = play.ask(case_id="a")
    for case in "bcd":
        play.ask(case_id=case)
    status = play.broker.status(play.now_s)
    assert (status.in_flight, status.peak_in_flight, status.waiting) == (2, 2, 2)
    assert (status.open_episodes, status.ended_episodes) == (2, 0)
    play.back(first)
    play.end("a")
    status = play.broker.status(play.now_s)
    assert (status.in_flight, status.peak_in_flight, status.waiting) == (2, 2, 1)
    assert (status.open_episodes, status.ended_episodes) == (2, 1)


@pytest.mark.parametrize(
    ("outcome", "is_own", "n"),
    [("rate", True, 1), ("refused", False, 0), ("overload", False, 1), ("ok", False, 0)],
)
def test_broker_status_counts_cases_that_wait_to_retry(outcome, is_own, n):
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 2)))
    for case in "ab":
        play.answer(play.ask(case_id=case), outcome, Feedback(is_own=is_own))
    assert play.broker.status(play.now_s).trying == 2 * n
    play.end("a")
    assert play.broker.status(play.now_s).trying == n
    play.ask(case_id="b", opens=False)
    assert play.broker.status(play.now_s).trying == 0


@pytest.mark.parametrize(
    ("api", "stream", "is_whole"),
    [("openai", False, True), ("openai", True, False), ("simulated", False, False)],
)
def test_status_marks_a_lane_of_a_real_server_that_does_not_stream(api, stream, is_whole):
    found = pool([lane("a", "k")])
    (provider,) = found.providers
    models = tuple(replace(model, stream=stream) for model in provider.models)
    play = Play(replace(found, providers=(replace(provider, api=api, models=models),)))
    assert play.status("p/a/k").is_whole is is_whole
