"""The player of the broker: what happens when, on a clock that costs no time."""

from __future__ import annotations

from tests.broker_play import Play
from tests.pools import lane, pool


def serving(now_s: float = 0.0) -> tuple[Play, list[float]]:
    """Each request is given back after a second; the ends of all that were."""
    ended_s = []

    def end(number: int) -> None:
        ended_s.append(play.now_s)
        play.back(number)

    play = Play(pool([lane("a", "k")]), lambda number: play.later(1.0, end, number), now_s=now_s)
    return play, ended_s


def test_clock_goes_from_one_thing_that_happens_to_the_next():
    play, ended_s = serving(5.0)
    play.later(0.5, play.ask)
    play.later(3.0, play.ask)
    times_s = []
    while ended_s != [6.5, 9.0]:
        times_s.append(play.next_s())
        assert play.step()
        assert play.now_s == times_s[-1]
    assert [at_s for at_s in times_s if at_s in {5.5, 6.5, 8.0, 9.0}] == [5.5, 6.5, 8.0, 9.0]
    assert [one.granted_s for one in play.granted.values()] == [5.5, 8.0]


def test_waiting_lets_happen_what_falls_into_it_and_nothing_else():
    play, ended_s = serving()
    play.ask()
    play.wait(0.9)
    assert (play.now_s, ended_s) == (0.9, [])
    play.wait(0.1)
    assert (play.now_s, ended_s) == (1.0, [1.0])


def test_client_that_slept_comes_late_to_what_was_due():
    play, ended_s = serving()
    play.ask()
    play.now_s = 7.0
    play.step()
    assert ended_s == [7.0]
