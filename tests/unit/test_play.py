"""The player of the broker: what happens when, on a clock that costs no time."""

from __future__ import annotations

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.testing import BrokerPlay
from tests.property.broker_judge import lane, pool


class Heard(BrokerPlay):
    """Notes when each request was granted, and gives it back after a second."""

    def __init__(self, *limits, now_s: float = 0.0) -> None:
        lanes = [lane("a", "k", *(one.name for one in limits))]
        super().__init__(LaneBroker(pool(lanes, *limits)), now_s=now_s)
        self.granted_s = []
        self.ended_s = []
        self.connect("w")

    def ask(self, number: int) -> None:
        self.request("w", LeaseRequest(number, "m"))

    def book(self, actions):
        for action in actions:
            self.granted_s.append(self.now_s)
            self.later(1.0, self.end, action.lease.lease_id)

    def end(self, lease_id: int) -> None:
        self.ended_s.append(self.now_s)
        self.release("w", lease_id)


def test_clock_goes_from_one_thing_that_happens_to_the_next():
    play = Heard(now_s=5.0)
    play.later(0.5, play.ask, 1)
    play.later(3.0, play.ask, 2)
    times_s = []
    while play.ended_s != [6.5, 9.0]:
        times_s.append(play.next_s())
        assert play.step()
        assert play.now_s == times_s[-1]
    assert [at_s for at_s in times_s if at_s in {5.5, 6.5, 8.0, 9.0}] == [5.5, 6.5, 8.0, 9.0]
    assert play.granted_s == [5.5, 8.0]


def test_waiting_lets_happen_what_falls_into_it_and_nothing_else():
    play = Heard()
    play.ask(1)
    play.wait(0.9)
    assert (play.now_s, play.ended_s) == (0.9, [])
    play.wait(0.1)
    assert (play.now_s, play.ended_s) == (1.0, [1.0])


def test_client_that_slept_comes_late_to_what_was_due():
    play = Heard()
    play.ask(1)
    play.now_s = 7.0
    play.step()
    assert play.ended_s == [7.0]
