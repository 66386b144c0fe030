"""Homes, work stealing, and the wait for home workers at the start of a run."""

from __future__ import annotations

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

A, B = "p/m/k0", "p/m/k1"


def two_homes(workers: int = 1) -> Play:
    """gw0 is at home on A, gw1 on B."""
    lanes = [lane("m", "k0", "k0"), lane("m", "k1", "k1")]
    play = Play(pool(lanes, Limit("k0", "key", workers), Limit("k1", "key", workers)))
    play.assign(Assignment(home={"gw0": (A,), "gw1": (B,)}))
    return play


def test_workers_keep_to_their_homes():
    play = two_homes(workers=2)
    play.connect("gw0", "gw1")
    lanes = [(play.lane(play.ask("gw1")), play.lane(play.ask("gw0"))) for _ in range(2)]
    assert lanes == [(B, A), (B, A)]


def test_lane_is_not_stolen_before_its_home_worker_has_spoken():
    play = two_homes()
    first, second = play.ask("gw0"), play.ask("gw0")
    assert (play.lane(first), play.lane(second)) == (A, None)
    third = play.ask("gw1")
    assert play.lane(third) == B
    play.back(third)
    assert play.lane(second) == B


def test_lane_is_stolen_when_its_home_worker_has_spoken_for_another_model():
    lanes = [lane("m", "k0", "k0"), lane("m", "k1", "k1"), lane("n", "k1", "k1", model="n")]
    play = Play(pool(lanes, Limit("k0", "key", 1), Limit("k1", "key", 2)))
    play.assign(Assignment(home={"gw0": (A,), "gw1": (B,)}))
    play.ask("gw0")
    waiting = play.ask("gw0")
    assert play.lane(waiting) is None
    play.ask("gw1", "n")
    assert play.lane(waiting) == B


def test_lane_is_stolen_two_seconds_after_the_first_request():
    play = two_homes()
    play.ask("gw0")
    waiting = play.ask("gw0")
    play.wait(1.99)
    assert play.lane(waiting) is None
    play.wait(0.02)
    lease = play.leases[waiting]
    assert lease.lane == B
    assert lease.granted_s == 102.0
    assert play.status(B).waited_s == {"home": 2.0}


def test_hold_does_not_begin_before_the_first_request():
    play = two_homes()
    play.connect("gw0")
    play.leave("gw0")
    play.wait(60)
    play.connect("gw0", "gw2")
    assert play.lane(play.ask("gw0")) == A
    waiting = play.ask("gw0")
    assert play.lane(waiting) is None


def test_lane_is_stolen_when_its_home_worker_is_gone():
    play = two_homes()
    play.connect("gw1")
    play.ask("gw0")
    waiting = play.ask("gw0")
    play.leave("gw1")
    assert play.lane(waiting) == B


def test_home_worker_goes_before_a_borrower_that_waits_longer():
    play = two_homes()
    first, held = play.ask("gw1"), play.ask("gw0")
    borrower, at_home = play.ask("gw0"), play.ask("gw1")
    play.back(first)
    assert play.lane(at_home) == B
    play.back(at_home)
    assert play.lane(borrower) == B
    assert play.lane(held) == A


def test_idle_lane_is_stolen_so_that_no_key_idles():
    play = two_homes(workers=3)
    play.ask("gw1")
    lanes = [play.lane(play.ask("gw0")) for _ in range(5)]
    assert lanes == [A, A, A, B, B]


def test_worker_that_is_not_named_is_at_home_everywhere():
    play = two_homes()
    assert {play.lane(play.ask("gw7")), play.lane(play.ask("gw7"))} == {A, B}


def test_worker_without_any_home_lane_only_borrows():
    lanes = [lane("m", "k0", "k0")]
    play = Play(pool(lanes, Limit("k0", "key", 1)))
    home = {"gw0": (A,), "gw1": ()}
    play.assign(Assignment(home=home))
    first, borrower, owner = play.ask("gw0"), play.ask("gw1"), play.ask("gw0")
    play.back(first)
    assert play.lane(owner) == A
    play.back(owner)
    assert play.lane(borrower) == A


def test_turn_stays_on_its_lane_even_where_its_worker_is_not_at_home():
    play = two_homes()
    play.ask("gw0")
    play.ask("gw1")
    turn, owner = play.ask("gw0", lane=B), play.ask("gw1")
    play.back(2)
    assert play.lane(turn) == B
    assert play.lane(owner) is None


def test_second_assignment_gives_a_replacement_worker_its_home():
    play = two_homes()
    play.ask("gw1")
    play.leave("gw1")
    home = {"gw0": (A,), "gw2": (B,)}
    play.assign(Assignment(home=home))
    first, waiting = play.ask("gw0"), play.ask("gw0")
    assert (play.lane(first), play.lane(waiting)) == (A, None)
    assert play.lane(play.ask("gw2")) == B
