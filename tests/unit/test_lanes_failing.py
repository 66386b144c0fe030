"""Lanes that fail, as the broker carries it out: probes, retries, who goes where."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

A, B, C = "p/a/k0", "p/b/k0", "p/c/k0"


def one_lane(workers: int = 10, **settings: object) -> Play:
    of = pool([lane("a", "k0", "k0", request_s=50.0)], Limit("k0", "key", workers))
    return Play(of, **settings)


def three_lanes(workers: int = 20) -> Play:
    limits = [Limit(name, "instance", workers) for name in "abc"]
    return Play(pool([lane(name, "k0", name) for name in "abc"], *limits))


def break_lane(play: Play, lane_id: str = A, outcome: str = "overload") -> None:
    """Five failures in a row on a lane that has answered before."""
    play.back(play.ask(lane=lane_id))
    for request_id in [play.ask(lane=lane_id) for _ in range(5)]:
        assert play.lane(request_id) == lane_id
        play.back(request_id, outcome)
    assert play.status(lane_id).state == "paused"


def test_open_breaker_holds_all_requests_back_and_then_lets_one_through():
    play = one_lane()
    break_lane(play)
    waiting = [play.ask() for _ in range(4)]
    play.wait(4.9)
    assert not play.leases
    play.wait(0.7)
    assert [play.lane(n) for n in waiting] == [A, None, None, None]
    play.wait(3.0)
    assert len(play.leases) == 1
    play.back(waiting[0], "ok")
    assert len(play.leases) == 3
    status = play.status(A)
    assert (status.state, status.n_opened) == ("up", 1)
    assert 5.0 <= status.paused_s["breaker"] <= 9.0


def test_probe_that_fails_opens_for_twice_as_long():
    play = one_lane()
    break_lane(play)
    waiting = [play.ask() for _ in range(2)]
    play.wait(5.5)
    play.back(waiting[0], "timeout")
    play.wait(9.9)
    assert not play.leases
    play.wait(1.2)
    assert play.lane(waiting[1]) == A


@pytest.mark.parametrize("outcome", ["unsent", "cancelled"])
def test_probe_without_news_makes_room_for_the_next_at_once(outcome):
    play = one_lane()
    break_lane(play)
    waiting = [play.ask() for _ in range(3)]
    play.wait(5.5)
    play.back(waiting[0], outcome)
    assert [play.lane(n) for n in waiting[1:]] == [A, None]


def test_probe_whose_worker_dies_makes_room_for_the_next_at_once():
    play = one_lane()
    break_lane(play)
    play.ask(worker="gw1")
    other = play.ask(worker="gw0")
    play.wait(5.5)
    assert play.lane(other) is None
    play.leave("gw1")
    assert play.lane(other) == A


def test_probe_that_is_never_given_back_blocks_the_lane_only_until_its_term_ends():
    play = one_lane()
    break_lane(play)
    play.ask()
    other = play.ask()
    play.wait(5.5)
    assert play.lane(other) is None
    # 60 s to be sent, 50 s to be over.
    play.wait(109.0)
    assert play.lane(other) is None
    play.wait(2.0)
    assert play.lane(other) == A


def test_requests_move_to_other_lanes_while_a_probe_is_out():
    play = three_lanes()
    break_lane(play)
    turn = play.ask(lane=A)
    assert play.lane(turn) in {B, C}
    play.wait(5.5)
    probes = [play.ask(lane=A) for _ in range(3)]
    assert [play.lane(n) for n in probes].count(A) == 1


def test_turn_that_waits_for_its_lane_moves_when_that_becomes_a_probe_of_another():
    limits = [Limit("a", "instance", 10), Limit("b", "instance", 1)]
    play = Play(pool([lane("a", "k0", "a"), lane("b", "k0", "b")], *limits))
    break_lane(play)
    full = play.ask(lane=B)
    waiting = [play.ask(lane=A) for _ in range(2)]
    play.wait(5.5)
    assert [play.lane(n) for n in waiting] == [A, None]
    play.back(full)
    assert play.lane(waiting[1]) == B


def test_lane_silent_for_an_episodes_time_is_out_and_refuses_who_waits():
    play = one_lane(episode_timeout_s=60.0)
    break_lane(play, outcome="timeout")
    waiting = [play.ask() for _ in range(2)]
    play.wait(5.5)
    assert play.lane(waiting[0]) == A
    play.wait(54.0)
    assert not play.refused
    play.wait(1.0)
    assert "failed and answered nothing" in play.refused[waiting[1]]
    status = play.status(A)
    assert status.state == "out"
    assert status.removed_after_s == pytest.approx(60.0)


@pytest.mark.parametrize("how", ["withdraw", "disconnect"])
def test_who_leaves_at_the_moment_a_lane_goes_out_is_told_nothing_and_all_others_are(how):
    play = one_lane(episode_timeout_s=60.0)
    break_lane(play, outcome="timeout")
    asked = {worker: play.ask(worker=worker) for worker in ("gw0", "gw1", "gw2")}
    play.wait(50.0)
    leaving, staying = (worker for worker, request in asked.items() if not play.lane(request))
    # Nobody ticks: it is from the one who leaves that the broker learns the time.
    play.now_s += 10.1
    if how == "withdraw":
        actions = play.broker.withdraw(leaving, asked[leaving], play.now_s)
    else:
        actions = play.broker.disconnect(leaving, play.now_s)
    play.book(actions)
    assert set(play.refused) == {asked[staying]}


def test_retry_goes_to_another_lane_of_the_model_and_stays_off_the_one_that_failed():
    play = three_lanes()
    for _ in range(6):
        first = play.ask(lane=A)
        play.back(first, "overload")
        play.ask(lane=B)
        retry = play.ask(lane=A, after=A)
        assert play.lane(retry) in {B, C}
        play.back(retry)
    assert play.status(A).n_moved == 6


def test_retry_waits_for_another_lane_rather_than_hit_the_one_that_failed():
    limits = [Limit("a", "instance", 10), Limit("b", "instance", 1)]
    play = Play(pool([lane("a", "k0", "a"), lane("b", "k0", "b")], *limits))
    full = play.ask(lane=B)
    play.back(play.ask(lane=A), "transport")
    retry = play.ask(lane=A, after=A)
    assert play.lane(retry) is None
    play.back(full)
    assert play.lane(retry) == B


def test_retry_stays_where_no_other_lane_is_up():
    play = three_lanes()
    play.back(play.ask(lane=B), "rate", 50.0)
    play.back(play.ask(lane=C), "not_found")
    play.back(play.ask(lane=A), "overload")
    assert play.lane(play.ask(lane=A, after=A)) == A
    assert play.status(A).n_moved == 0


def test_retry_never_leaves_its_model():
    lanes = [lane("a", "k0", "k0"), lane("z", "k0", "k0", model="n")]
    play = Play(pool(lanes, Limit("k0", "key", 10)))
    play.back(play.ask(lane=A), "overload")
    assert play.lane(play.ask(lane=A, after=A)) == A


def test_retry_budget_is_a_fifth_of_the_requests_and_ten_and_the_others_wait():
    play = one_lane(workers=1000)
    for request_id in [play.ask() for _ in range(50)]:
        play.back(request_id)
    retries = [play.ask(lane=A, after=A) for _ in range(30)]
    assert [n for n in retries if n in play.leases] == retries[:20]
    assert not play.refused
    assert play.broker.status(play.now_s).waiting == 10


def test_retry_that_waits_for_its_budget_goes_when_new_requests_let_it_grow():
    play = one_lane(workers=1000)
    held = [play.ask(lane=A, after=A) for _ in range(10)]
    waiting = [play.ask(lane=A, after=A) for _ in range(2)]
    for _ in range(4):
        play.ask()
    assert [play.lane(n) for n in waiting] == [None, None]
    play.ask()
    assert [play.lane(n) for n in waiting] == [A, None]
    assert all(play.lane(n) == A for n in held)
    first = play.leases[waiting[0]]
    assert (first.seat_wait_s, first.rate_wait_s) == (0.0, 0.0)


def test_probes_of_an_instance_that_answers_nothing_go_at_most_twice_a_minute():
    play = one_lane(workers=1000, episode_timeout_s=1e6)
    play.back(play.ask())
    for request_id in [play.ask(lane=A, after=A) for _ in range(10)]:
        play.back(request_id, "malformed")
    waiting = [play.ask(lane=A, after=A) for _ in range(20)]
    sent_s: list[float] = []
    until_s = play.now_s + 600.0
    while play.now_s < until_s:
        play.wait(0.25)
        for request_id in waiting:
            if request_id in play.leases:
                sent_s.append(play.now_s)
                play.back(request_id, "malformed")
    gaps_s = [b - a for a, b in pairwise(sent_s)]
    assert all(gap_s >= 29.0 for gap_s in gaps_s[4:])
    assert 8 <= len(sent_s) <= 25


def test_probes_follow_each_other_at_once_while_the_instance_answers():
    play = one_lane(workers=1000)
    for _ in range(10):
        play.ask(lane=A, after=A)
    waiting = [play.ask(lane=A, after=A) for _ in range(3)]
    play.wait(0.9)
    assert not any(n in play.leases for n in waiting)
    play.wait(0.2)
    for done, request_id in enumerate(waiting):
        assert [play.lane(n) for n in waiting[done:]] == [A, *[None] * (2 - done)]
        assert play.leases[request_id].rate_wait_s == pytest.approx(1.05, abs=0.06)
        play.back(request_id)


def test_answer_of_the_instance_lets_the_next_probe_go_before_its_time():
    play = one_lane(workers=1000)
    other = play.ask()
    for _ in range(10):
        play.ask(lane=A, after=A)
    waiting = play.ask(lane=A, after=A)
    assert play.lane(waiting) is None
    play.back(other)
    assert play.lane(waiting) == A


def test_retries_that_wait_end_with_their_lanes():
    play = one_lane(workers=1000)
    held = [play.ask(lane=A, after=A) for _ in range(10)]
    waiting = [play.ask(lane=A, after=A) for _ in range(3)]
    play.back(held[0], "not_found")
    assert set(play.refused) == set(waiting)
    assert all("not found (404)" in play.refused[n] for n in waiting)
    assert play.broker.status(play.now_s).waiting == 0


@pytest.mark.parametrize("how", ["withdraw", "disconnect"])
def test_probe_that_nobody_wants_any_more_makes_room_for_the_next(how):
    play = one_lane(workers=11)
    held = [play.ask(lane=A, after=A) for _ in range(10)]
    play.ask(lane=A)
    probe = play.ask("gw1", lane=A, after=A)
    last = play.ask(lane=A, after=A)
    play.wait(1.5)
    # The probe waits for a seat; the last one for the probe.
    if how == "withdraw":
        play.withdraw("gw1", probe)
    else:
        play.leave("gw1")
    play.back(held[0])
    assert play.lane(last) == A
    assert probe not in play.leases


def test_retry_budget_counts_retries_that_wait_and_not_what_was_never_sent():
    play = one_lane(workers=1)
    for _ in range(40):
        play.back(play.ask(), "unsent")
    held = play.ask()
    for _ in range(12):
        play.ask(lane=A, after=A)
    parked = play.broker._table.lanes[A].instance.retries.parked
    assert len(parked) == 2
    play.back(held)


def test_retry_budget_is_shared_by_the_lanes_of_an_instance_and_by_no_others():
    lanes = [lane("a", "k0", "pool"), lane("a", "k1", "pool"), lane("b", "k0", "pool")]
    play = Play(pool(lanes, Limit("pool", "pool", 1000)))
    on_a = [play.ask(lane=A, after=which) for which in (A, "p/a/k1") * 10]
    assert sum(play.lane(n) is None for n in on_a) == 10
    on_b = [play.ask(lane=B, after=B) for _ in range(10)]
    assert all(play.lane(n) is not None for n in on_b)


def test_clock_that_jumps_an_hour_takes_no_lane_out():
    play = one_lane()
    break_lane(play)
    play.now_s += 3600.0
    play.book(play.broker.tick(play.now_s))
    probe, other = play.ask(), play.ask()
    play.wait(1.0)
    assert [play.lane(probe), play.lane(other)] == [A, None]
    play.back(probe)
    assert play.status(A).state == "up"
    assert play.lane(other) == A


def test_forbidden_takes_the_key_out_for_that_model_alone():
    lanes = [lane("a", "k0", "x"), lane("b", "k0", "x"), lane("z", "k0", "x", model="n")]
    play = Play(pool([*lanes, lane("a", "k1", "x")], Limit("x", "pool", 9)))
    play.back(play.ask(lane=A), "forbidden")
    states = {one.lane: one.state for one in play.broker.status(play.now_s).lanes}
    assert states == {A: "out", B: "out", "p/z/k0": "up", "p/a/k1": "up"}


def test_retries_of_an_instance_that_is_out_wait_for_nobody():
    limits = [Limit("a", "instance", 50), Limit("b", "instance", 50)]
    play = Play(pool([lane("a", "k0", "a"), lane("b", "k0", "b")], *limits))
    failed = [play.ask(lane=A) for _ in range(30)]
    gone = play.ask(lane=A)
    for request_id in failed:
        play.back(request_id, "malformed")
    parked = [play.ask(lane=A, after=A) for _ in range(30)]
    assert any(n not in play.leases for n in parked)
    play.back(gone, "not_found")
    assert [play.lane(n) for n in parked] == [B] * 30
    assert play.lane(play.ask(lane=A, after=A)) == B


def test_key_that_is_refused_is_out_under_all_its_names():
    lanes = [lane("a", "k0", "x"), lane("b", "k1", "x"), lane("c", "k2", "x")]
    lanes[1] = replace(lanes[1], listed_as=lanes[0].key_name)
    play = Play(pool(lanes, Limit("x", "pool", 9)))
    play.back(play.ask(lane=A), "auth")
    states = [one.state for one in play.broker.status(play.now_s).lanes]
    assert states == ["out", "out", "up"]


def test_limit_that_was_only_ever_refused_is_not_said_to_be_back():
    play = one_lane(workers=20)
    for request_id in [play.ask() for _ in range(20)]:
        play.back(request_id, "rate")
    found = play.status(A).estimated
    assert found is not None
    assert (found.declared, found.is_back) == (True, False)
