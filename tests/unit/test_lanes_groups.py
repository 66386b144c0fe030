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


def test_group_waits_until_all_cases_before_it_have_ended():
    play = play_with(Group("one", ("a", "b")), Group("two", ("c",), after=("one",)))
    late = play.ask(group="two", case_id="c")
    for case in "ab":
        assert play.lane(late) is None
        play.back(play.ask(group="one", case_id=case))
        play.end(case, "one")
    assert play.lane(late) is not None


def test_case_that_ends_twice_counts_once():
    play = play_with(Group("one", ("a", "b")), Group("two", ("c",), after=("one",)))
    late = play.ask(group="two", case_id="c")
    for _ in range(5):
        play.end("a", "one")
    assert play.lane(late) is None
    assert play.broker.status(play.now_s).ended_episodes == 1


def test_case_may_end_in_another_worker_or_without_ever_opening():
    play = play_with(Group("one", ("a",)), Group("two", ("c",), after=("one",)))
    late = play.ask("gw0", group="two", case_id="c")
    play.end("a", "one", worker="nobody")
    assert play.lane(late) is not None


def test_group_after_an_empty_group_starts_at_once():
    play = play_with(Group("none", ()), Group("two", ("c",), after=("none",)))
    assert play.lane(play.ask(group="two", case_id="c")) is not None


def test_delay_counts_from_the_start_of_the_run():
    play = play_with(Group("late", ("a",), start_after_s=15.0))
    play.wait(5)
    waiting = play.ask(group="late", case_id="a")
    play.wait(20)
    lease = play.leases[waiting]
    assert lease.granted_s == 115.0
    assert (lease.seat_wait_s, lease.rate_wait_s) == (0.0, 0.0)
    assert play.status(lease.lane).waited_s == {"group": 10.0}


def test_delay_counts_from_the_end_of_the_groups_before():
    play = play_with(Group("one", ("a",)), Group("two", ("b",), after=("one",), start_after_s=3.0))
    waiting = play.ask(group="two", case_id="b")
    play.wait(50)
    play.end("a", "one")
    play.wait(10)
    assert play.leases[waiting].granted_s == 153.0


def test_exclusive_groups_run_one_after_the_other():
    play = play_with(
        Group("one", ("a", "b"), exclusive="key0"),
        Group("two", ("c",), exclusive="key0"),
        Group("other", ("d",), exclusive="key1"),
    )
    play.ask(group="one", case_id="a")
    other, second = play.ask(group="other", case_id="d"), play.ask(group="two", case_id="c")
    assert play.lane(other) is not None
    assert play.lane(second) is None
    play.end("a", "one")
    assert play.lane(second) is None
    play.end("b", "one")
    assert play.lane(second) is not None


def test_exclusive_group_that_asks_first_goes_first_whatever_its_place():
    play = play_with(Group("one", ("a",), exclusive="w"), Group("two", ("b",), exclusive="w"))
    second, first = play.ask(group="two", case_id="b"), play.ask(group="one", case_id="a")
    assert play.lane(second) is not None
    play.end("b", "two")
    assert play.lane(first) is not None


def test_exclusive_word_goes_to_the_first_in_the_assignment_when_several_wait():
    names = ("one", "two", "three")
    play = play_with(*(Group(name, (name,), exclusive="w") for name in names))
    asked = {name: play.ask(group=name, case_id=name) for name in ("two", "three", "one")}
    play.end("two", "two")
    assert play.lane(asked["one"]) is not None
    assert play.lane(asked["three"]) is None


def test_exclusive_word_is_free_again_when_its_only_request_left_unserved():
    play = play_with(Group("one", ("a",), exclusive="w"), Group("two", ("b",), exclusive="w"))
    play.back(play.ask(lane=A), "rate", 60.0)
    play.back(play.ask(lane=B), "rate", 60.0)
    first, second = play.ask(group="one", case_id="a"), play.ask(group="two", case_id="b")
    play.wait(1)
    play.withdraw("gw0", first)
    play.wait(70)
    assert play.lane(second) is not None


def test_exclusive_group_keeps_its_word_when_its_worker_dies_half_way():
    play = play_with(Group("one", ("a", "b"), exclusive="w"), Group("two", ("c",), exclusive="w"))
    play.ask("gw0", group="one", case_id="a")
    second = play.ask("gw1", group="two", case_id="c")
    play.leave("gw0")
    assert play.lane(second) is None
    assert play.lane(play.ask("gw1", group="one", case_id="a")) is not None


def test_at_most_so_many_episodes_are_open_at_once():
    play = play_with(Group("g", tuple("abcd"), at_once=2))
    asked = {case: play.ask(group="g", case_id=case) for case in "abcd"}
    assert [play.lane(n) is not None for n in asked.values()] == [True, True, False, False]
    play.back(asked["a"])
    assert play.lane(asked["c"]) is None
    play.end("a", "g")
    assert play.lane(asked["c"]) is not None
    assert play.lane(asked["d"]) is None


def test_turns_of_open_episodes_pass_a_group_that_is_full():
    play = play_with(Group("g", tuple("ab"), at_once=1))
    first = play.ask(group="g", case_id="a")
    blocked = play.ask(group="g", case_id="b")
    play.back(first)
    assert play.lane(play.ask(group="g", case_id="a", lane=A)) == A
    assert play.lane(blocked) is None


def test_asking_twice_for_a_first_lease_opens_one_episode():
    play = play_with(Group("g", tuple("ab"), at_once=1))
    play.back(play.ask(group="g", case_id="a"), "unsent")
    assert play.lane(play.ask(group="g", case_id="a")) is not None
    other = play.ask(group="g", case_id="b")
    assert play.broker.status(play.now_s).open_episodes == 1
    play.end("a", "g")
    assert play.lane(other) is not None


def test_two_waiting_wishes_for_one_first_lease_open_one_episode():
    play = play_with()
    held = [play.ask() for _ in range(4)]
    twice = [play.ask(case_id="a") for _ in range(2)]
    for request in held:
        play.back(request)
    assert all(play.lane(request) for request in twice)
    assert play.broker.status(play.now_s).open_episodes == 5
    play.end("a")
    assert play.broker.status(play.now_s).open_episodes == 4


def test_dead_workers_episodes_are_open_no_more():
    play = play_with(Group("g", tuple("ab"), at_once=1))
    play.ask("gw0", group="g", case_id="a")
    waiting = play.ask("gw1", group="g", case_id="b")
    play.leave("gw0")
    assert play.lane(waiting) is not None
    assert play.broker.status(play.now_s).open_episodes == 1


def test_unnamed_episodes_count_too():
    play = play_with(Group("g", tuple("ab"), at_once=1))
    play.ask(group="g")
    waiting = play.ask(group="g")
    play.end("a", "g")
    assert play.lane(waiting) is not None


def test_group_keeps_to_its_lanes():
    play = play_with(Group("g", tuple("abcdef"), lanes=(B,)))
    assert {play.lane(play.ask(group="g", case_id=case)) for case in "abcd"} == {B}


def test_group_whose_lanes_are_out_is_refused_and_others_are_not():
    play = play_with(Group("g", tuple("ab"), lanes=(B,)))
    play.back(play.ask(group="g", case_id="a"), "not_found")
    refused = play.ask(group="g", case_id="b")
    assert "instance p/b was not found" in play.refused[refused]
    assert play.lane(play.ask()) == A


def test_waiting_requests_of_a_shut_group_are_refused_when_their_lanes_go_out():
    play = play_with(Group("one", ("a",)), Group("g", ("b",), lanes=(B,), after=("one",)))
    shut = play.ask(group="g", case_id="b")
    play.back(play.ask(lane=B), "not_found")
    assert shut in play.refused


def test_group_without_a_lane_of_the_model_is_refused():
    play = play_with(Group("g", ("a",), lanes=()))
    request = play.ask(group="g", case_id="a")
    assert play.refused[request] == "the group of the case allows no lane of the model 'm'"


def test_unknown_group_is_refused_after_the_assignment_and_waits_for_it_before():
    play = Play(pool([lane("a", "k0")]))
    early, wrong = play.ask(group="g", case_id="a"), play.ask(group="h", case_id="b")
    assert play.lane(early) is None
    play.assign(Assignment(groups=(Group("g", ("a",)),)))
    assert play.lane(early) == A
    assert play.refused == {wrong: "the assignment has no group 'h'"}
    assert play.ask(group="h") in play.refused


def test_second_assignment_keeps_what_is_open_and_what_has_ended():
    groups = (Group("g", tuple("abc"), at_once=1), Group("h", ("d",), after=("g",)))
    play = play_with(*groups)
    play.end("a", "g")
    play.ask(group="g", case_id="b")
    waiting, after = play.ask(group="g", case_id="c"), play.ask(group="h", case_id="d")
    play.assign(Assignment(groups=groups))
    assert play.lane(waiting) is None
    play.end("b", "g")
    assert play.lane(waiting) is not None
    play.end("c", "g")
    assert play.lane(after) is not None


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        (Assignment(home={"gw0": ("p/x/k0",)}), "home of gw0 names the unknown lane 'p/x/k0'"),
        (Assignment(groups=(Group("g", (), lanes=("no",)),)), "unknown lane 'no'"),
        (Assignment(groups=(Group("", ()),)), "empty name"),
        (Assignment(groups=(Group("g", ()), Group("g", ()))), "two groups are named 'g'"),
        (Assignment(groups=(Group("g", ("a",)), Group("h", ("a",)))), "case a is in the groups"),
        (
            Assignment(groups=(Group("g", (), after=("no",)),)),
            "comes after 'no', which is no group",
        ),
        (Assignment(groups=(Group("g", (), after=("g",)),)), "wait for each other"),
        (
            Assignment(groups=(Group("g", (), after=("h",)), Group("h", (), after=("g",)))),
            "wait for each other and never start: g, h",
        ),
        (Assignment(groups=(Group("g", (), at_once=0),)), "at_once must be >= 1"),
        (Assignment(groups=(Group("g", (), start_after_s=-1.0),)), "start_after_s must be"),
        (Assignment(groups=(Group("g", (), start_after_s=float("nan")),)), "start_after_s must be"),
    ],
)
def test_assignment_that_cannot_be_carried_out_is_refused_and_changes_nothing(assignment, says):
    play = play_with(Group("real", ("a",)))
    with pytest.raises(ConfigError, match=says):
        play.broker.assign(assignment, play.now_s)
    assert play.lane(play.ask(group="real", case_id="a")) is not None
