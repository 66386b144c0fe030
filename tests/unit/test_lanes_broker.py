"""Grants of the broker: limits, order, rotation, fail-over, refusals."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pytest_ultrapar.broker.protocol import NO_FEEDBACK, KnownLane, LeaseRequest
from pytest_ultrapar.broker.shares import Row
from pytest_ultrapar.broker.throttles import Seats
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool


def two_lanes(**first_limits: object) -> Play:
    a, b = lane("a", "k0", "k0"), lane("b", "k1", "k1")
    return Play(pool([a, b], Limit("k0", "key", **first_limits), Limit("k1", "key")))


def one_lane(**limits: object) -> Play:
    return Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", **limits)))


def test_rate_used_by_an_unsent_lease_is_not_returned():
    play = one_lane(qps=1)
    play.back(play.ask(), "unsent")
    waiting = play.ask()
    play.wait(0.9)
    assert play.lane(waiting) is None
    play.wait(0.2)
    assert play.leases[waiting].granted_s == pytest.approx(101.0)


def test_clock_that_goes_backwards_grants_no_more_leases():
    play = one_lane(qps=1)
    play.ask()
    waiting = play.ask()
    play.now_s = 50.0
    play.book(play.broker.tick(play.now_s))
    again = play.ask()
    assert play.lane(waiting) is play.lane(again) is None
    assert play.broker.next_wake_s() == pytest.approx(101.0)


def test_grant_is_never_dated_before_an_earlier_grant():
    play = two_lanes()
    play.ask()
    play.now_s = 50.0
    assert play.leases[play.ask()].granted_s == 100.0


def test_single_requests_use_the_lanes_in_turn():
    lanes = [lane(name, "k0", name) for name in "abc"]
    play = Play(pool(lanes, *(Limit(name, "instance", 5) for name in "abc")))
    used = []
    for _ in range(6):
        request = play.ask()
        used.append(play.lane(request))
        play.back(request)
    assert used == [f"p/{name}/k0" for name in "abcabc"]


def test_request_goes_to_the_emptiest_lane_relative_to_its_cap():
    lanes = [lane("big", "k0", "pool", "big"), lane("small", "k0", "pool", "small")]
    limits = (
        Limit("pool", "pool", 100),
        Limit("big", "instance", 8),
        Limit("small", "instance", 2),
    )
    play = Play(pool(lanes, *limits))
    used = [play.lane(play.ask()) for _ in range(10)]
    assert used.count("p/big/k0") == 8
    assert used[:5].count("p/big/k0") == 4


def test_pause_has_a_reason_and_ends_by_itself():
    play = one_lane()
    play.back(play.ask(), "rate", 5.0)
    status = play.status("p/a/k0")
    assert (status.state, status.n_rate_limited) == ("paused", 1)
    assert "asked to wait 5 s" in status.reason
    play.wait(6)
    status = play.status("p/a/k0")
    assert (status.state, status.reason) == ("up", "")


def test_removal_of_the_last_lane_refuses_waiting_and_later_requests():
    play = one_lane(workers=1)
    first, waiting, turn = play.ask(), play.ask(), play.ask(lane="p/a/k0")
    play.back(first, "auth")
    later = play.ask()
    assert set(play.refused) == {waiting, turn, later}
    why = (
        "key p/k0 was refused (401, or a message that rejects the key): removed for the rest "
        "of the run"
    )
    assert set(play.refused.values()) == {f"no lane for the model 'm' is left: {why}"}
    assert play.broker.status(play.now_s).waiting == 0


def test_only_the_lane_known_to_be_dead_is_removed_from_the_start():
    lanes = [lane(i, "k0", model=m) for i, m in (("a", "m"), ("b", "n"))]
    dead = KnownLane("p/a/k0", 90.0, removed="it does not answer")
    play = Play(pool(lanes), known=[dead])
    refused = play.ask(model="m")
    assert play.refused[refused] == (
        "no lane for the model 'm' is left: it does not answer: removed for the rest of the run"
    )
    assert play.lane(play.ask(model="n")) == "p/b/k0"


def test_lane_known_to_pause_waits_for_the_rest_of_its_pause():
    # Pauses are up to a tenth longer than asked for.
    play = Play(pool([lane("a", "k0")]), known=[KnownLane("p/a/k0", 90.0, retry_after_s=30.0)])
    waiting = play.ask()
    play.wait(19.9)
    assert waiting not in play.leases
    play.wait(3.2)
    assert play.lane(waiting) == "p/a/k0"


def test_pause_that_ended_before_the_run_has_no_effect():
    play = Play(pool([lane("a", "k0")]), known=[KnownLane("p/a/k0", 10.0, retry_after_s=30.0)])
    assert play.lane(play.ask()) == "p/a/k0"
    assert play.status("p/a/k0").state == "up"


def test_unknown_model_is_refused_with_the_known_models():
    play = one_lane()
    request = play.ask(model="nope")
    assert play.refused[request] == "the pool has no lane for the model 'nope'; it has lanes for m"


def test_lease_comes_back_once_and_from_its_holder_only():
    play = one_lane(workers=1)
    lease = play.leases[play.ask("gw0")]
    play.connect("gw1")
    waiting = play.ask("gw1")
    play.release("gw1", lease.lease_id, "ok", NO_FEEDBACK)
    assert play.lane(waiting) is None
    play.release("gw0", lease.lease_id, "ok", NO_FEEDBACK)
    play.release("gw0", lease.lease_id, "ok", NO_FEEDBACK)
    assert play.lane(waiting) == "p/a/k0"
    assert play.ask("gw1") not in play.leases
    assert play.status("p/a/k0").in_flight == 1


def test_workers_take_turns_regardless_of_the_order_of_requests():
    play = one_lane(workers=1)
    play.connect("gw0", "gw1", "gw2")
    first = play.ask("gw0")
    asked = [play.ask("gw0") for _ in range(3)] + [play.ask("gw1"), play.ask("gw2")]
    for _ in range(5):
        play.back(list(play.granted)[-1])
    assert [play.whose[n] for n in list(play.granted)[1:]] == ["gw2", "gw1", "gw0", "gw0", "gw0"]
    assert set(play.granted) == {first, *asked}


def test_no_worker_has_many_more_seats_than_others_that_wait():
    """Each worker opens a connection for every seat that it ever had."""
    rng, held, most = random.Random(0), Counter(), Counter()

    def granted(request: int) -> None:
        worker = play.whose[request]
        held[worker] += 1
        most[worker] = max(most[worker], held[worker])
        play.later(rng.lognormvariate(0.0, 0.5), over, worker, request)

    def over(worker: str, request: int) -> None:
        held[worker] -= 1
        play.back(request)
        play.ask(worker)

    play = one_lane(workers=40)
    play.on_grant = granted
    for n in range(80):
        play.ask(f"gw{n // 10}")
    assert sorted(held.values()) == [10] * 4, "the first workers have all seats"
    play.wait(10.0)
    most.clear()
    play.wait(50.0)
    assert sum(most.values()) <= 40 + 8


def test_lease_without_a_rate_may_be_sent_within_a_minute():
    play = one_lane(workers=1)
    lease = play.leases[play.ask()]
    assert lease.send_by_s - lease.granted_s == 60.0


def test_same_calls_give_the_same_actions():
    def story() -> list[tuple[int, str, float]]:
        play = two_lanes(workers=2, qps=3)
        for n in range(30):
            play.ask(f"gw{n % 3}")
            if n % 4 == 3:
                play.back(next(iter(play.leases)), "rate" if n % 8 == 7 else "ok")
            play.wait(0.2)
        return [(n, play.leases[n].lane, play.leases[n].granted_s) for n in play.leases]

    assert story() == story()


def test_bound_request_goes_only_to_its_lane_even_if_others_are_free():
    play = two_lanes(workers=1)
    first = play.ask(lane="p/a/k0")
    assert play.lane(first) == "p/a/k0"
    bound, other = (play.ask(lane="p/a/k0", is_bound=is_bound) for is_bound in (True, False))
    play.back(first, "rate", 5.0)
    # The lane pauses: a follow-up uses the other lane, and the bound request waits.
    play.wait(1)
    assert (play.lane(bound), play.lane(other)) == (None, "p/b/k1")
    play.wait(5)
    assert play.lane(bound) == "p/a/k0"
    play.back(bound, "transport")
    again = play.ask(lane="p/a/k0", after="p/a/k0", is_bound=True)
    assert play.lane(again) == "p/a/k0"


def test_bound_request_is_refused_if_its_lane_is_removed():
    play = two_lanes(workers=1)
    first = play.ask()
    assert play.lane(first) == "p/a/k0"
    waiting = play.ask(lane="p/a/k0", is_bound=True)
    play.back(first, "auth")
    later = play.ask(lane="p/a/k0", is_bound=True)
    unknown = play.ask(lane="p/no/k0", is_bound=True)
    for request in (waiting, later, unknown):
        assert "is left" in play.refused[request] or "allows no lane" in play.refused[request]
    assert play.lane(play.ask(lane="p/a/k0")) == "p/b/k1"


# -- claims that other hosts may have taken --------------------------------------------------------


def held(play, until_s, taken=(), again=()):
    play.book(play.broker.hold_claims(until_s, taken, again, play.now_s))


@pytest.mark.parametrize("limits", [{"workers": 2}, {"qps": 1}, {}])
def test_nothing_is_granted_after_claims_expire(limits):
    """For example on a host that slept: due requests go when the claims are renewed."""
    play = one_lane(**limits)
    held(play, 105.0)
    first = play.ask(case_id="a")
    waiting = [play.ask(case_id=case) for case in ("b", "c")]
    play.now_s = 160.0
    play.back(first)
    late = play.ask(lane="p/a/k0", case_id="a")
    play.wait(5)
    assert all(one.granted_s < 105.0 for one in play.granted.values())
    held(play, 172.5)
    play.wait(5)
    assert late in play.granted
    assert set(waiting) & play.waiting == ({waiting[1]} if "workers" in limits else set())


@pytest.mark.parametrize(("claims_s", "shares_s"), [(105.0, 102.0), (105.0, 110.0)])
def test_lease_may_be_sent_only_while_claims_and_shares_hold(claims_s, shares_s):
    """A host that slept has old leases, whose claims and shares other hosts may have by now."""
    row = Row("k0", "workers")
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", workers=4)), shared=[row])
    play.book(play.broker.share({row: 4}, shares_s, play.now_s))
    held(play, claims_s)
    lease = play.leases[play.ask()]
    assert lease.send_by_s == lease.ends_s == min(claims_s, shares_s)


def test_requests_of_cases_taken_by_other_hosts_are_refused_until_they_return():
    play = one_lane(workers=1)
    held(play, 105.0)
    flight = play.ask(case_id="gone")
    waiting, other = play.ask(case_id="gone"), play.ask(case_id="own")
    play.now_s = 160.0
    held(play, 167.5, taken=["gone", "new"])
    assert (set(play.refused), play.kinds) == ({waiting}, {"taken"})
    play.back(flight)
    play.end("gone")
    assert play.lane(other)
    # The next request of a conversation, and a case that had not begun.
    turns = [play.ask(lane="p/a/k0", case_id="gone"), play.ask(case_id="new")]
    assert set(turns) < set(play.refused)
    play.back(other)
    held(play, 167.5, again=["new"])
    assert play.lane(play.ask(case_id="new"))


def test_retry_that_waits_for_its_instance_is_refused_if_another_host_has_its_case():
    play = one_lane()
    asked = [play.ask(lane="p/a/k0", after="p/a/k0", case_id=f"{n}") for n in range(30)]
    parked = [n for n in asked if n not in play.leases]
    assert parked
    held(play, 107.5, taken=[play.requests[n].case_id for n in parked])
    assert set(play.refused) == set(parked)


def test_worker_name_is_accepted_once():
    play = one_lane()
    play.connect("gw0")
    with pytest.raises(ValueError, match="'gw0' is already connected"):
        play.broker.connect("gw0", play.now_s)


def test_request_id_is_accepted_once_while_it_waits():
    play = one_lane(workers=1)
    play.ask()
    waiting = play.ask()
    with pytest.raises(ValueError, match="is already waiting"):
        play.broker.request("gw0", LeaseRequest(waiting, "m"), play.now_s)


def test_unknown_worker_cannot_request_a_lease():
    with pytest.raises(ValueError, match="no worker named 'gw9'"):
        one_lane().broker.request("gw9", LeaseRequest(1, "m"), 0.0)


def test_seats_stay_full_after_a_cut_until_enough_are_returned():
    seats = Seats(4)
    for _ in range(4):
        seats.take()
    seats.cap = 2
    for _ in range(2):
        seats.give_back()
        assert seats.is_full
    seats.give_back()
    assert not seats.is_full
