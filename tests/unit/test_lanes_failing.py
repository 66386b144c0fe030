"""Lanes that fail, in the broker: probes, retries, and the choice of lanes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

A, B, C = "p/a/k0", "p/b/k0", "p/c/k0"


def one_lane(workers: int = 10, **settings: object) -> Play:
    of = pool([lane("a", "k0", "k0", request_s=50.0)], Limit("k0", "key", workers))
    return Play(of, **settings)


def break_lane(play: Play, lane_id: str = A, outcome: str = "overload") -> None:
    """Let a lane that has answered before fail five times in a row."""
    play.back(play.ask(lane=lane_id))
    for request_id in [play.ask(lane=lane_id) for _ in range(5)]:
        assert play.lane(request_id) == lane_id
        play.back(request_id, outcome)
    assert play.status(lane_id).state == "paused"


@pytest.mark.parametrize("how", ["withdraw", "disconnect"])
def test_request_that_leaves_when_its_lane_is_removed_gets_no_refusal_and_others_do(how):
    play = one_lane(episode_timeout_s=60.0)
    break_lane(play, outcome="timeout")
    asked = {worker: play.ask(worker=worker) for worker in ("gw0", "gw1", "gw2")}
    play.wait(50.0)
    leaving, staying = (worker for worker, request in asked.items() if not play.lane(request))
    # Without a tick, the broker learns the time from the request that leaves.
    play.now_s += 10.1
    if how == "withdraw":
        actions = play.broker.withdraw(leaving, asked[leaving], play.now_s)
    else:
        actions = play.broker.disconnect(leaving, play.now_s)
    play.book(actions)
    assert set(play.refused) == {asked[staying]}


def test_retry_that_waits_for_the_budget_goes_when_new_requests_raise_it():
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


def test_probes_follow_each_other_immediately_while_the_instance_answers():
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


def test_answer_of_the_instance_releases_the_next_probe_early():
    play = one_lane(workers=1000)
    other = play.ask()
    for _ in range(10):
        play.ask(lane=A, after=A)
    waiting = play.ask(lane=A, after=A)
    assert play.lane(waiting) is None
    play.back(other)
    assert play.lane(waiting) == A


def test_waiting_retries_are_refused_when_their_lanes_are_removed():
    play = one_lane(workers=1000)
    held = [play.ask(lane=A, after=A) for _ in range(10)]
    waiting = [play.ask(lane=A, after=A) for _ in range(3)]
    play.back(held[0], "not_found")
    assert set(play.refused) == set(waiting)
    assert all("not found (404)" in play.refused[n] for n in waiting)
    assert play.broker.status(play.now_s).waiting == 0


@pytest.mark.parametrize("how", ["withdraw", "disconnect"])
def test_withdrawn_probe_makes_room_for_the_next(how):
    play = one_lane(workers=11)
    held = [play.ask(lane=A, after=A) for _ in range(10)]
    play.ask(lane=A)
    probe = play.ask("gw1", lane=A, after=A)
    last = play.ask(lane=A, after=A)
    play.wait(1.5)
    # The probe waits for a seat, and the last request for the probe.
    if how == "withdraw":
        play.withdraw("gw1", probe)
    else:
        play.leave("gw1")
    play.back(held[0])
    assert play.lane(last) == A
    assert probe not in play.leases


def test_retry_budget_counts_waiting_retries_and_not_unsent_requests():
    play = one_lane(workers=1)
    for _ in range(40):
        play.back(play.ask(), "unsent")
    held = play.ask()
    for _ in range(12):
        play.ask(lane=A, after=A)
    parked = play.broker._table.lanes[A].instance.retries.parked
    assert len(parked) == 2
    play.back(held)


def test_retry_budget_is_shared_only_by_the_lanes_of_an_instance():
    lanes = [lane("a", "k0", "pool"), lane("a", "k1", "pool"), lane("b", "k0", "pool")]
    play = Play(pool(lanes, Limit("pool", "pool", 1000)))
    on_a = [play.ask(lane=A, after=which) for which in (A, "p/a/k1") * 10]
    assert sum(play.lane(n) is None for n in on_a) == 10
    on_b = [play.ask(lane=B, after=B) for _ in range(10)]
    assert all(play.lane(n) is not None for n in on_b)


def test_forbidden_removes_the_key_for_that_model_only():
    lanes = [lane("a", "k0", "x"), lane("b", "k0", "x"), lane("z", "k0", "x", model="n")]
    play = Play(pool([*lanes, lane("a", "k1", "x")], Limit("x", "pool", 9)))
    play.back(play.ask(lane=A), "forbidden")
    states = {one.lane: one.state for one in play.broker.status(play.now_s).lanes}
    assert states == {A: "out", B: "out", "p/z/k0": "up", "p/a/k1": "up"}


def test_retries_of_a_removed_instance_go_to_another_instance_immediately():
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


def test_refused_key_is_removed_under_all_its_names():
    lanes = [lane("a", "k0", "x"), lane("b", "k1", "x"), lane("c", "k2", "x")]
    lanes[1] = replace(lanes[1], listed_as=lanes[0].key_name)
    play = Play(pool(lanes, Limit("x", "pool", 9)))
    play.back(play.ask(lane=A), "auth")
    states = [one.state for one in play.broker.status(play.now_s).lanes]
    assert states == ["out", "out", "up"]


def test_limit_without_any_answer_is_not_reported_as_recovered():
    play = one_lane(workers=20)
    for request_id in [play.ask() for _ in range(20)]:
        play.back(request_id, "rate")
    found = play.status(A).estimated
    assert found is not None
    assert (found.declared, found.is_back) == (True, False)


def test_instance_that_never_answers_gets_at_most_two_probes_a_minute():
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


def test_probe_whose_worker_dies_makes_room_for_the_next_immediately():
    play = one_lane()
    break_lane(play)
    play.ask(worker="gw1")
    other = play.ask(worker="gw0")
    play.wait(5.5)
    assert play.lane(other) is None
    play.leave("gw1")
    assert play.lane(other) == A


@pytest.mark.parametrize("n_others", [0, 1])
def test_refused_connection_of_the_only_request_means_that_the_server_is_gone(n_others):
    play = one_lane()
    play.back(play.ask())
    for _ in range(n_others):
        play.ask()
    refused = Feedback(is_wordless=True, exceeded="in_flight")
    play.answer(play.ask(), "congestion", refused)
    awaits = "" if n_others else "instance p/a cannot be reached; giving up after 120 s"
    assert play.status(A).awaits == awaits
