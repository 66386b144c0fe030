"""Whose fault a refusal is, in the broker: where the request goes, and when a lane is checked."""

from __future__ import annotations

import pytest

from pytest_ultrapar.apis.failure_classes import DOUBTED
from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

A, B, C = "p/a/k0", "p/a/k1", "p/b/k0"
APART = "p/b/k1"
DAY_S = 86_400.0
# What Azure says of a request that is larger than its limit, vanderschaarlab/climb#1.
REFUSALS = [*((outcome,) for outcome in sorted(DOUBTED)), ("rate", DAY_S)]


def play_on(*lanes, workers=10):
    found = [lane(*one.split("/")[1:], "all", request_s=60.0) for one in lanes]
    return Play(pool(found, Limit("all", "pool", workers=workers)))


def ask(play, case, refused_by=(), **wish):
    return play.ask(case_id=case, opens=False, refused_by=tuple(refused_by), **wish)


def serve(play, *lanes):
    """Have each of these lanes answer something."""
    for one in lanes:
        request = ask(play, "well", lane=one)
        assert play.lane(request) == one
        play.back(request)


def is_check(play, request):
    return play.leases[request].is_check


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusal_of_one_request_goes_once_to_another_lane_and_nothing_is_removed(refusal):
    play = play_on(A, B)
    serve(play, A, B)
    play.back(ask(play, "bad", lane=A), *refusal)
    again = ask(play, "bad", [A], lane=A)
    assert (play.lane(again), is_check(play, again)) == (B, False)
    play.back(again)
    assert play.status(A).state == play.status(B).state == "up"


def test_refusal_by_two_lanes_stands_after_a_check_of_each():
    play = play_on(A, B, C)
    serve(play, A, B, C)
    play.back(ask(play, "bad", lane=A), "forbidden")
    # C shares the key with A, and B its instance: neither is wholly another.
    play.back(ask(play, "bad", [A]), "forbidden")
    tried = []
    while (request := ask(play, "bad", [A, B])) in play.leases:
        assert is_check(play, request)
        tried.append(play.lane(request))
        play.back(request)
    assert tried == [A, B]
    assert play.kinds == {"refusal_of_request"}
    assert [play.status(one).state for one in (A, B, C)] == ["up"] * 3


def test_refusal_where_there_is_no_other_lane_stands_at_once():
    play = play_on(A)
    serve(play, A)
    play.back(ask(play, "bad", lane=A), "not_found")
    assert ask(play, "bad", [A]) in play.refused
    assert play.kinds == {"refusal_of_request"}
    serve(play, A)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_first_word_of_a_lane_is_no_verdict_but_a_check_is(refusal):
    play = play_on(A, APART)
    play.back(ask(play, "one", lane=A), *refusal)
    assert play.lane(ask(play, "one", [A], lane=A)) == APART
    check = ask(play, "two", lane=A)
    assert (play.lane(check), is_check(play, check)) == (A, True)
    # Nothing else goes there until it is back.
    assert play.lane(ask(play, "three", lane=A)) == APART
    play.back(check, *refusal)
    assert play.status(A).state == "out"
    assert play.status(A).outcomes == {refusal[0]: 2}


def test_check_that_is_answered_clears_the_lane():
    play = play_on(A)
    play.back(ask(play, "bad", lane=A), "forbidden")
    check = ask(play, "bad", [A])
    assert is_check(play, check)
    play.back(check)
    assert ask(play, "bad", [A]) in play.refused
    serve(play, A)


def test_lane_that_worked_is_checked_when_two_requests_in_a_row_are_refused():
    play = play_on(A, B)
    serve(play, A, B)
    for case in ("one", "two"):
        play.back(ask(play, case, lane=A), "auth")
        assert play.lane(ask(play, case, [A])) == B
    check = ask(play, "three", lane=A)
    assert is_check(play, check)
    # A key that is dead may be so in other words.
    play.back(check, "forbidden")
    assert play.status(A).state == "out"
    assert play.status(A).outcomes["auth"] == 2


def test_dead_lane_refuses_no_more_than_is_in_flight_and_its_check():
    play = play_on(A, workers=4)
    serve(play, A)
    asked = [ask(play, f"case {n}", lane=A) for n in range(20)]
    for request in asked:
        if request in play.leases:
            play.back(request, "auth")
    assert play.status(A).state == "out"
    # Four at once, of which the second refusal brings the suspicion; then one is the check.
    assert play.status(A).outcomes["auth"] <= 4 + 3


def test_request_that_is_refused_waits_for_no_lane_whose_server_is_away():
    play = play_on(A, B)
    serve(play, A)
    play.back(ask(play, "early", lane=B), "connect")
    play.back(ask(play, "bad", lane=A), "forbidden")
    assert ask(play, "bad", [A]) in play.refused
    assert play.kinds == {"refusal_of_request"}


def test_lanes_alike_wait_for_the_check_of_one_and_go_on_when_it_is_answered():
    play = play_on(A, B)
    for lane_id in (A, B):
        play.back(ask(play, f"first of {lane_id}", lane=lane_id), "not_found")
    check = ask(play, "next", lane=A)
    assert is_check(play, check)
    waiting = [ask(play, f"other {n}", lane=B) for n in range(3)]
    assert play.waiting == {*waiting}
    play.back(check)
    assert play.waiting == set()


def test_answers_between_refusals_keep_a_lane_out_of_suspicion():
    play = play_on(A)
    serve(play, A)
    for n in range(5):
        play.back(ask(play, f"bad {n}", lane=A), "forbidden")
        assert ask(play, f"bad {n}", [A]) in play.refused
        serve(play, A)


def test_request_waits_for_the_check_of_its_only_lane_and_is_asked_again():
    play = play_on(A)
    first, second = ask(play, "one", lane=A), ask(play, "two", lane=A)
    play.back(first, "auth")
    play.back(second, "auth")
    check = ask(play, "one", [A])
    waits = ask(play, "two", [A])
    assert is_check(play, check)
    assert waits in play.waiting
    play.back(check)
    assert (play.lane(waits), is_check(play, waits)) == (A, False)


def test_requests_that_wait_for_a_dead_lane_go_to_the_others_when_it_is_removed():
    play = play_on(A, B, workers=1)
    play.back(ask(play, "one", lane=A), "auth")
    seat = ask(play, "well", lane=B)
    waiting = [ask(play, "two", lane=A), ask(play, "three", lane=A)]
    play.back(seat)
    assert is_check(play, waiting[0])
    play.back(waiting[0], "auth")
    assert play.lane(waiting[1]) == B


@pytest.mark.parametrize("end", ["leave", "unsent", "late"])
def test_check_that_never_comes_back_leaves_the_lane_to_the_next(end):
    play = play_on(A)
    play.back(ask(play, "one", lane=A), "auth")
    check = ask(play, "one", [A])
    assert is_check(play, check)
    if end == "leave":
        play.leave("gw0")
        play.wait(1000.0)
    elif end == "unsent":
        play.back(check, "unsent")
    else:
        play.wait(1000.0)
    assert play.lane(ask(play, "two", lane=A)) == A


def test_check_that_fails_otherwise_is_no_verdict():
    play = play_on(A)
    play.back(ask(play, "one", lane=A), "auth")
    play.back(ask(play, "one", [A]), "overload")
    assert play.status(A).state == "up"
    # A check would follow a check for as long as it fails.
    assert ask(play, "one", [A]) in play.refused


def test_refused_requests_of_no_case_remove_as_ever():
    play = play_on(A, B)
    play.back(play.ask(lane=A), "auth")
    assert play.status(A).state == "out"


def test_answer_while_a_check_is_out_ends_the_suspicion_and_nothing_goes_round_in_circles():
    play = play_on(A)
    serve(play, A)
    early = ask(play, "early", lane=A)
    for case in ("one", "two"):
        play.back(ask(play, case, lane=A), "auth")
    check = ask(play, "two", [A])
    assert is_check(play, check)
    play.back(early)
    # Not granted for nothing, again and again, until the check is back.
    assert ask(play, "one", [A]) in play.refused
    play.back(check)
    serve(play, A)


def test_breaker_that_opens_while_a_check_is_out_stays_open():
    play = play_on(A)
    early = ask(play, "early", lane=A)
    play.back(ask(play, "one", lane=A), "not_found")
    check = ask(play, "one", [A])
    assert is_check(play, check)
    play.back(early, "connect")
    play.back(check)
    assert play.status(A).state == "paused"
    play.wait(2.0)
    serve(play, A)


def test_lane_that_two_requests_doubt_is_not_removed_while_they_have_others_checked():
    keys = ["k0", "k1", "k2"]
    limits = [Limit(key, "key", workers=4) for key in keys]
    play = Play(pool([lane("a", key, key, request_s=60.0) for key in keys], *limits))
    k0, k1, k2 = lanes = [f"p/a/{key}" for key in keys]
    serve(play, *lanes)
    play.back(ask(play, "one", lane=k0), "forbidden")
    play.back(ask(play, "two", lane=k1), "forbidden")
    for busy in (k0, k1):
        for n in range(3):
            ask(play, f"busy {n}", lane=busy)
    for refused in [ask(play, "one", [k0], lane=k0), ask(play, "two", [k1], lane=k1)]:
        assert play.lane(refused) == k2
        play.back(refused, "forbidden")
    # The checks of the lanes that refused them first take their time.
    ask(play, "one", [k0, k2], lane=k2)
    ask(play, "two", [k1, k2], lane=k2)
    play.wait(1.5)
    third = ask(play, "three", lane=k2)
    assert is_check(play, third)
    play.back(third)
    assert play.status(k2).state == "up"


def test_check_that_is_refused_in_another_way_removes_nothing():
    play = play_on(A)
    play.back(ask(play, "one", lane=A), "forbidden")
    check = ask(play, "one", [A])
    assert is_check(play, check)
    # A server without chat completions, say.
    play.back(check, "not_found")
    assert play.status(A).state == "up"


SAID = Feedback(words=7)
ELSE = Feedback(words=8)


def test_bad_request_that_is_the_first_word_of_an_instance_has_it_checked():
    play = play_on(A, B)
    first = ask(play, "one", lane=A), ask(play, "two", lane=A)
    play.answer(first[0], "bad_request", SAID)
    check = ask(play, "one", [A, A], lane=A)
    assert (play.lane(check), is_check(play, check)) == (A, True)
    # Nor does it go on where the same server answers for another key.
    assert ask(play, "other", lane=B) in play.waiting
    play.answer(first[1], "bad_request", SAID)
    play.answer(check, "bad_request", SAID)
    assert {play.status(one).state for one in (A, B)} == {"out"}
    assert "refuses even the shortest request for m" in play.status(A).reason


@pytest.mark.parametrize(("outcome", "told"), [("ok", None), ("bad_request", ELSE)])
def test_bad_request_is_its_own_where_the_check_is_not_refused_alike(outcome, told):
    play = play_on(A, APART)
    play.answer(ask(play, "one", lane=A), "bad_request", SAID)
    check = ask(play, "one", [A], stays=True)
    play.answer(check, outcome, told or Feedback())
    # It goes nowhere else: any other lane would say the same.
    assert ask(play, "one", [A], stays=True) in play.refused
    assert play.kinds == {"refusal_of_request"}
    play.answer(ask(play, "two", lane=A), "bad_request", SAID)
    assert not is_check(play, ask(play, "three", lane=A))


def test_bad_request_to_a_lane_that_has_answered_is_its_own():
    play = play_on(A)
    serve(play, A)
    for case in ("one", "two", "three"):
        request = ask(play, case, lane=A)
        assert not is_check(play, request)
        play.answer(request, "bad_request", SAID)
    assert play.status(A).state == "up"


def test_check_of_a_bad_request_that_asks_for_what_is_not_there_is_the_only_one():
    play = play_on(A)
    play.answer(ask(play, "one", lane=A), "bad_request", SAID)
    play.back(ask(play, "one", [A], stays=True), "not_found")
    play.answer(ask(play, "two", lane=A), "bad_request", SAID)
    assert ask(play, "two", [A], stays=True) in play.refused
    assert play.status(A).state == "up"
