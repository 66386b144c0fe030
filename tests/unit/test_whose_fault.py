"""Refusals in the broker: retry the request on another lane, or check the lane."""

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
# Azure's answer to a request larger than its limit, vanderschaarlab/climb#1.
REFUSALS = [*((outcome,) for outcome in sorted(DOUBTED)), ("rate", DAY_S)]


def play_on(*lanes, workers=10):
    found = [lane(*one.split("/")[1:], "all", request_s=60.0) for one in lanes]
    return Play(pool(found, Limit("all", "pool", workers=workers)))


def ask(play, case, refused_by=(), **wish):
    return play.ask(case_id=case, opens=False, refused_by=tuple(refused_by), **wish)


def serve(play, *lanes):
    """Send a request on each of these lanes and answer it."""
    for one in lanes:
        request = ask(play, "well", lane=one)
        assert play.lane(request) == one
        play.back(request)


def is_check(play, request):
    return play.leases[request].is_check


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refused_request_is_retried_on_another_lane_and_no_lane_is_removed(refusal):
    play = play_on(A, B)
    serve(play, A, B)
    play.back(ask(play, "bad", lane=A), *refusal)
    again = ask(play, "bad", [A], lane=A)
    assert (play.lane(again), is_check(play, again)) == (B, False)
    play.back(again)
    assert play.status(A).state == play.status(B).state == "up"


def test_refusal_by_two_lanes_is_final_after_a_check_of_each():
    play = play_on(A, B, C)
    serve(play, A, B, C)
    play.back(ask(play, "bad", lane=A), "forbidden")
    # C shares the key with A, and B shares the instance with A: no lane is independent of A.
    play.back(ask(play, "bad", [A]), "forbidden")
    tried = []
    while (request := ask(play, "bad", [A, B])) in play.leases:
        assert is_check(play, request)
        tried.append(play.lane(request))
        play.back(request)
    assert tried == [A, B]
    assert play.kinds == {"refusal_of_request"}
    assert [play.status(one).state for one in (A, B, C)] == ["up"] * 3


def test_refusal_without_another_lane_is_final_immediately():
    play = play_on(A)
    serve(play, A)
    play.back(ask(play, "bad", lane=A), "not_found")
    assert ask(play, "bad", [A]) in play.refused
    assert play.kinds == {"refusal_of_request"}
    serve(play, A)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_first_refusal_of_a_lane_causes_a_check_and_the_check_removes_it(refusal):
    play = play_on(A, APART)
    play.back(ask(play, "one", lane=A), *refusal)
    assert play.lane(ask(play, "one", [A], lane=A)) == APART
    check = ask(play, "two", lane=A)
    assert (play.lane(check), is_check(play, check)) == (A, True)
    # The lane gets no other request until the check is back.
    assert play.lane(ask(play, "three", lane=A)) == APART
    play.back(check, *refusal)
    assert play.status(A).state == "out"
    assert play.status(A).outcomes == {refusal[0]: 2}


def test_answered_check_clears_the_lane():
    play = play_on(A)
    play.back(ask(play, "bad", lane=A), "forbidden")
    check = ask(play, "bad", [A])
    assert is_check(play, check)
    play.back(check)
    assert ask(play, "bad", [A]) in play.refused
    serve(play, A)


def test_working_lane_is_checked_after_two_refusals_in_a_row():
    play = play_on(A, B)
    serve(play, A, B)
    for case in ("one", "two"):
        play.back(ask(play, case, lane=A), "auth")
        assert play.lane(ask(play, case, [A])) == B
    check = ask(play, "three", lane=A)
    assert is_check(play, check)
    # A dead key may be refused with another class.
    play.back(check, "forbidden")
    assert play.status(A).state == "out"
    assert play.status(A).outcomes["auth"] == 2


def test_dead_lane_refuses_only_requests_in_flight_and_its_check():
    play = play_on(A, workers=4)
    serve(play, A)
    asked = [ask(play, f"case {n}", lane=A) for n in range(20)]
    for request in asked:
        if request in play.leases:
            play.back(request, "auth")
    assert play.status(A).state == "out"
    # Four requests in flight; the second refusal causes the check.
    assert play.status(A).outcomes["auth"] <= 4 + 3


def test_refused_request_does_not_wait_for_an_unreachable_lane():
    play = play_on(A, B)
    serve(play, A)
    play.back(ask(play, "early", lane=B), "connect")
    play.back(ask(play, "bad", lane=A), "forbidden")
    assert ask(play, "bad", [A]) in play.refused
    assert play.kinds == {"refusal_of_request"}


def test_lanes_of_an_instance_wait_for_one_check_and_continue_when_it_is_answered():
    play = play_on(A, B)
    for lane_id in (A, B):
        play.back(ask(play, f"first of {lane_id}", lane=lane_id), "not_found")
    check = ask(play, "next", lane=A)
    assert is_check(play, check)
    waiting = [ask(play, f"other {n}", lane=B) for n in range(3)]
    assert play.waiting == {*waiting}
    play.back(check)
    assert play.waiting == set()


def test_answers_between_refusals_prevent_a_check():
    play = play_on(A)
    serve(play, A)
    for n in range(5):
        play.back(ask(play, f"bad {n}", lane=A), "forbidden")
        assert ask(play, f"bad {n}", [A]) in play.refused
        serve(play, A)


def test_request_waits_for_the_check_of_its_only_lane_and_is_sent_again():
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


def test_requests_waiting_for_a_removed_lane_move_to_others():
    play = play_on(A, B, workers=1)
    play.back(ask(play, "one", lane=A), "auth")
    seat = ask(play, "well", lane=B)
    waiting = [ask(play, "two", lane=A), ask(play, "three", lane=A)]
    play.back(seat)
    assert is_check(play, waiting[0])
    play.back(waiting[0], "auth")
    assert play.lane(waiting[1]) == B


@pytest.mark.parametrize("end", ["leave", "unsent", "late"])
def test_lost_check_does_not_block_the_lane(end):
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


def test_check_that_fails_for_another_reason_removes_nothing():
    play = play_on(A)
    play.back(ask(play, "one", lane=A), "auth")
    play.back(ask(play, "one", [A]), "overload")
    assert play.status(A).state == "up"
    # Otherwise failing checks would follow one another.
    assert ask(play, "one", [A]) in play.refused


def test_refused_request_without_a_case_removes_its_lane():
    play = play_on(A, B)
    play.back(play.ask(lane=A), "auth")
    assert play.status(A).state == "out"


def test_answer_during_a_check_ends_the_suspicion_without_a_loop():
    play = play_on(A)
    serve(play, A)
    early = ask(play, "early", lane=A)
    for case in ("one", "two"):
        play.back(ask(play, case, lane=A), "auth")
    check = ask(play, "two", [A])
    assert is_check(play, check)
    play.back(early)
    # The broker does not grant it again and again until the check is back.
    assert ask(play, "one", [A]) in play.refused
    play.back(check)
    serve(play, A)


def test_breaker_that_opens_during_a_check_stays_open():
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


def test_lane_is_not_removed_while_its_refused_requests_await_checks_elsewhere():
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
    # The checks of the two lanes that refused first wait for seats.
    ask(play, "one", [k0, k2], lane=k2)
    ask(play, "two", [k1, k2], lane=k2)
    play.wait(1.5)
    third = ask(play, "three", lane=k2)
    assert is_check(play, third)
    play.back(third)
    assert play.status(k2).state == "up"


def test_check_refused_with_another_class_removes_nothing():
    play = play_on(A)
    play.back(ask(play, "one", lane=A), "forbidden")
    check = ask(play, "one", [A])
    assert is_check(play, check)
    # For example, a server without chat completions.
    play.back(check, "not_found")
    assert play.status(A).state == "up"


SAID = Feedback(words=7)
ELSE = Feedback(words=8)


def test_bad_request_as_the_first_answer_of_an_instance_causes_a_check():
    play = play_on(A, B)
    first = ask(play, "one", lane=A), ask(play, "two", lane=A)
    play.answer(first[0], "bad_request", SAID)
    check = ask(play, "one", [A, A], lane=A)
    assert (play.lane(check), is_check(play, check)) == (A, True)
    # Another key on the same server waits, too.
    assert ask(play, "other", lane=B) in play.waiting
    play.answer(first[1], "bad_request", SAID)
    play.answer(check, "bad_request", SAID)
    assert {play.status(one).state for one in (A, B)} == {"out"}
    assert "refuses even the shortest request for m" in play.status(A).reason


@pytest.mark.parametrize(("outcome", "told"), [("ok", None), ("bad_request", ELSE)])
def test_bad_request_is_final_if_the_check_gets_another_answer(outcome, told):
    play = play_on(A, APART)
    play.answer(ask(play, "one", lane=A), "bad_request", SAID)
    check = ask(play, "one", [A], stays=True)
    play.answer(check, outcome, told or Feedback())
    # The request is not retried: any other lane gives the same answer.
    assert ask(play, "one", [A], stays=True) in play.refused
    assert play.kinds == {"refusal_of_request"}
    play.answer(ask(play, "two", lane=A), "bad_request", SAID)
    assert not is_check(play, ask(play, "three", lane=A))


def test_bad_request_on_a_working_lane_is_final():
    play = play_on(A)
    serve(play, A)
    for case in ("one", "two", "three"):
        request = ask(play, case, lane=A)
        assert not is_check(play, request)
        play.answer(request, "bad_request", SAID)
    assert play.status(A).state == "up"


def test_check_of_a_bad_request_that_gets_not_found_is_not_repeated():
    play = play_on(A)
    play.answer(ask(play, "one", lane=A), "bad_request", SAID)
    play.back(ask(play, "one", [A], stays=True), "not_found")
    play.answer(ask(play, "two", lane=A), "bad_request", SAID)
    assert ask(play, "two", [A], stays=True) in play.refused
    assert play.status(A).state == "up"
