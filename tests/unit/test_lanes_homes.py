"""Homes, work stealing, and the wait for home workers at the start of a run."""

from __future__ import annotations

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

A, B = "p/m/k0", "p/m/k1"


def two_homes(workers: int = 1) -> Play:
    """The home of gw0 is lane A, and the home of gw1 is lane B."""
    lanes = [lane("m", "k0", "k0"), lane("m", "k1", "k1")]
    play = Play(pool(lanes, Limit("k0", "key", workers), Limit("k1", "key", workers)))
    play.assign(Assignment(home={"gw0": (A,), "gw1": (B,)}))
    return play


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


def test_second_assignment_gives_a_replacement_worker_its_home():
    play = two_homes()
    play.ask("gw1")
    play.leave("gw1")
    home = {"gw0": (A,), "gw2": (B,)}
    play.assign(Assignment(home=home))
    first, waiting = play.ask("gw0"), play.ask("gw0")
    assert (play.lane(first), play.lane(waiting)) == (A, None)
    assert play.lane(play.ask("gw2")) == B
