"""Groups: order, delay, exclusion, number at once, lanes."""

from __future__ import annotations

import pytest

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

A, B = "p/a/k0", "p/b/k0"


def play_with(*groups: Group) -> Play:
    play = Play(pool([lane("a", "k0", "k0"), lane("b", "k0", "k0")], Limit("k0", "key", 4)))
    play.assign(Assignment(groups=groups))
    return play


def test_case_that_ends_twice_counts_once():
    play = play_with(Group("one", ("a", "b")), Group("two", ("c",), after=("one",)))
    late = play.ask(group="two", case_id="c")
    for _ in range(5):
        play.end("a")
    assert play.lane(late) is None
    assert play.broker.status(play.now_s).ended_episodes == 1


def test_exclusive_word_goes_to_the_first_waiting_group_of_the_assignment():
    names = ("one", "two", "three")
    play = play_with(*(Group(name, (name,), exclusive="w") for name in names))
    asked = {name: play.ask(group=name, case_id=name) for name in ("two", "three", "one")}
    play.end("two")
    assert play.lane(asked["one"]) is not None
    assert play.lane(asked["three"]) is None


def test_exclusive_word_is_free_again_when_its_only_request_is_withdrawn():
    play = play_with(Group("one", ("a",), exclusive="w"), Group("two", ("b",), exclusive="w"))
    play.back(play.ask(lane=A), "rate", 60.0)
    play.back(play.ask(lane=B), "rate", 60.0)
    first, second = play.ask(group="one", case_id="a"), play.ask(group="two", case_id="b")
    play.wait(1)
    play.withdraw("gw0", first)
    play.wait(70)
    assert play.lane(second) is not None


def test_asking_twice_for_a_first_lease_opens_one_episode():
    play = play_with(Group("g", tuple("ab"), at_once=1))
    play.back(play.ask(group="g", case_id="a"), "unsent")
    assert play.lane(play.ask(group="g", case_id="a")) is not None
    other = play.ask(group="g", case_id="b")
    assert play.broker.status(play.now_s).open_episodes == 1
    play.end("a")
    assert play.lane(other) is not None


def test_two_waiting_requests_for_one_first_lease_open_one_episode():
    play = play_with()
    held = [play.ask(case_id=str(n)) for n in range(4)]
    twice = [play.ask(case_id="a") for _ in range(2)]
    for request in held:
        play.back(request)
    assert all(play.lane(request) for request in twice)
    assert play.broker.status(play.now_s).open_episodes == 5
    play.end("a")
    assert play.broker.status(play.now_s).open_episodes == 4


def test_episodes_without_a_case_id_count_too():
    play = play_with(Group("g", tuple("ab"), at_once=1))
    play.ask(group="g")
    waiting = play.ask(group="g")
    play.end("a")
    assert play.lane(waiting) is not None


def test_only_the_group_whose_lanes_are_removed_is_refused():
    play = play_with(Group("g", tuple("ab"), lanes=(B,)))
    play.back(play.ask(lane=B), "not_found")
    refused = play.ask(group="g", case_id="b")
    assert "instance p/b was not found" in play.refused[refused]
    assert play.lane(play.ask()) == A


def test_requests_of_a_group_that_waits_are_refused_when_its_lanes_are_removed():
    play = play_with(Group("one", ("a",)), Group("g", ("b",), lanes=(B,), after=("one",)))
    shut = play.ask(group="g", case_id="b")
    play.back(play.ask(lane=B), "not_found")
    assert shut in play.refused


def test_group_without_a_lane_of_the_model_is_refused():
    play = play_with(Group("g", ("a",), lanes=()))
    request = play.ask(group="g", case_id="a")
    assert play.refused[request] == "the case's group allows no lane for the model 'm'"


def test_unknown_group_waits_for_the_assignment_and_is_refused_after_it():
    play = Play(pool([lane("a", "k0")]))
    early, wrong = play.ask(group="g", case_id="a"), play.ask(group="h", case_id="b")
    assert play.lane(early) is None
    play.assign(Assignment(groups=(Group("g", ("a",)),)))
    assert play.lane(early) == A
    assert play.refused == {wrong: "the assignment has no group 'h'"}
    assert play.ask(group="h") in play.refused


def test_second_assignment_keeps_open_and_ended_cases():
    groups = (Group("g", tuple("abc"), at_once=1), Group("h", ("d",), after=("g",)))
    play = play_with(*groups)
    play.end("a")
    play.ask(group="g", case_id="b")
    waiting, after = play.ask(group="g", case_id="c"), play.ask(group="h", case_id="d")
    play.assign(Assignment(groups=groups))
    assert play.lane(waiting) is None
    play.end("b")
    assert play.lane(waiting) is not None
    play.end("c")
    assert play.lane(after) is not None


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        (Assignment(home={"gw0": ("p/x/k0",)}), "the home of gw0 names the unknown lane 'p/x/k0'"),
        (Assignment(groups=(Group("g", (), lanes=("no",)),)), "unknown lane 'no'"),
        (Assignment(groups=(Group("g", ()), Group("g", ()))), "two groups are named 'g'"),
        (Assignment(groups=(Group("g", ("a",)), Group("h", ("a",)))), "case a is in the groups"),
        (Assignment(groups=(Group("g", (), after=("no",)),)), "comes after the unknown group 'no'"),
        (
            Assignment(groups=(Group("g", (), after=("h",)), Group("h", (), after=("g",)))),
            "wait for each other and never start: g, h",
        ),
        (Assignment(groups=(Group("g", (), at_once=0),)), "at_once must be >= 1"),
        (Assignment(groups=(Group("g", (), start_after_s=float("nan")),)), "start_after_s must be"),
    ],
)
def test_invalid_assignment_is_refused_and_changes_nothing(assignment, says):
    play = play_with(Group("real", ("a",)))
    with pytest.raises(ConfigError, match=says):
        play.broker.assign(assignment, play.now_s)
    assert play.lane(play.ask(group="real", case_id="a")) is not None
