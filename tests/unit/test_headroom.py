"""The spacing of sends, which balances late sends against slow ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pytest_ultrapar.broker.headroom import Headroom, first_late_s
from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.broker.wire import SentLate
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool


def one_key(**rates: float) -> Play:
    limit = Limit("k0", "key", **rates)
    return Play(pool([lane("i", "k0", "k0")], limit), late_s=first_late_s)


def granted(play: Play, **wish: object) -> int:
    """Wait for the lease of a new request; return the id of the request."""
    request = play.ask(**wish)
    while request not in play.leases:
        play.step()
    return request


def promised_s(play: Play) -> float:
    """The seconds by which the next send may be late without a cost."""
    lease = play.leases[granted(play)]
    return lease.late_after_s - lease.granted_s


def send(play: Play, late_s: float, outcome: str = "ok", **said: object) -> float:
    """Send a request `late_s` after its lease; return the time of the lease."""
    request = granted(play)
    lease = play.leases[request]
    play.wait(late_s)
    if play.now_s > lease.send_by_s:
        outcome = "unsent"
    elif play.now_s > lease.late_after_s:
        play.say("gw0", SentLate(lease.lease_id, late_s))
    said.setdefault("is_too_many", outcome == "rate")
    play.answer(request, outcome, Feedback(late_s=late_s, **said))
    return lease.granted_s


def spacing_s(play: Play, late_s: float = 0.001) -> float:
    first_s = send(play, late_s)
    return send(play, late_s) - first_s


@pytest.mark.parametrize(
    ("rates", "late_s", "spacing"), [({"qps": 10}, 0.05, 0.105), ({"rpm": 600}, 0.1, 60.1 / 600)]
)
def test_sends_begin_with_headroom_for_a_busy_start(rates, late_s, spacing):
    play = one_key(**rates)
    assert spacing_s(play) == pytest.approx(spacing)
    assert promised_s(play) == pytest.approx(late_s)


def test_tokens_are_counted_over_the_window_plus_the_headroom():
    play = one_key(tpm=100)
    first = granted(play, tokens=100)
    second = granted(play, tokens=100)
    gap_s = play.leases[second].granted_s - play.leases[first].granted_s
    assert gap_s == pytest.approx(60.1)


def test_punctual_sends_reduce_the_headroom_of_qps_to_one_per_cent():
    play = one_key(qps=10)
    for _ in range(300):
        send(play, 0.001)
    assert spacing_s(play) == pytest.approx(0.101)


def test_few_punctual_sends_do_not_reduce_the_headroom():
    play = one_key(qps=10)
    for _ in range(12):
        send(play, 0.001)
    assert spacing_s(play) == pytest.approx(0.105)


def test_send_later_than_promised_delays_all_that_follow():
    play = one_key(qps=10)
    first_s = send(play, 0.001)
    second_s = send(play, 0.08)
    assert send(play, 0.001) - second_s == pytest.approx(0.105 + 0.03)
    assert second_s - first_s == pytest.approx(0.105)


def test_delays_of_sends_that_are_late_together_do_not_add_up():
    """For example at a start: only the distance of later sends to a late send counts."""
    play = one_key(qps=10)
    first, second = granted(play), granted(play)
    began_s = play.leases[second].granted_s
    for request, late_s in ((first, 0.12), (second, 0.07)):
        play.say("gw0", SentLate(play.leases[request].lease_id, late_s))
    third_s = play.leases[granted(play)].granted_s
    assert third_s - began_s == pytest.approx(0.105 + 0.07)
    # A later report adds 0.03 s: it says 0.1 s too late, of which 0.07 s are counted.
    play.say("gw0", SentLate(play.leases[second].lease_id, 0.15))
    assert play.leases[granted(play)].granted_s - third_s == pytest.approx(0.105 + 0.03)


def test_request_that_is_late_by_more_than_an_interval_is_not_sent():
    play = one_key(qps=10)
    lease = play.leases[granted(play)]
    assert lease.late_after_s - lease.granted_s == pytest.approx(0.05)
    assert lease.send_by_s - lease.granted_s == pytest.approx(0.05 + 0.1)


@pytest.mark.parametrize(("rates", "most_s"), [({"qps": 1}, 0.25), ({"rpm": 1}, 1.0)])
def test_latest_time_to_send_is_bounded_for_slow_rates(rates, most_s):
    play = one_key(**rates)
    lease = play.leases[granted(play)]
    assert lease.send_by_s - lease.granted_s == pytest.approx(most_s)


def test_broker_that_wakes_late_does_not_slow_a_rate_down():
    play = one_key(qps=10)
    first_s = send(play, 0.0)
    for n in range(1, 11):
        request = play.ask()
        # It wakes 3 ms after the time of each send.
        play.wake(first_s + n * 0.105 + 0.003)
        assert request in play.leases
        play.answer(request, "ok", Feedback(late_s=0.0))


def test_rare_late_sends_get_no_headroom():
    # One of a hundred is 40 ms late. Headroom for it costs every send 4 %.
    play = one_key(qps=10)
    for n in range(1000):
        send(play, 0.04 if n % 100 == 0 else 0.005)
    assert promised_s(play) == pytest.approx(0.01)
    assert "unsent" not in play.status("p/i/k0").outcomes


def test_machine_on_which_all_sends_are_late_still_sends_all():
    play = one_key(qps=10)
    for _ in range(60):
        send(play, 0.09)
    assert promised_s(play) == pytest.approx(0.1)
    assert "unsent" not in play.status("p/i/k0").outcomes


def test_spacing_grows_before_a_longer_promise_and_shrinks_after_it_ends():
    headroom = Headroom(1.0, 0.05, 0.1)
    seen = []
    for second, late_s in enumerate([0.001] * 20 + [0.09] * 20 + [0.001] * 100):
        for _ in range(20):
            headroom.saw(late_s)
        headroom.revise(2.0 * second)
        seen.append((headroom.late_s, headroom.spare_s))
    assert {late_s for late_s, _ in seen} >= {0.01, 0.1}
    for (before_s, _), (late_s, spare_s) in pairwise(seen):
        assert spare_s >= max(before_s, late_s)
    for (_, before_s), (late_s, _) in pairwise(seen):
        assert late_s <= before_s


def test_headroom_is_revised_once_per_window():
    headroom = Headroom(1.0, 0.05, 0.1)
    assert not headroom.revise(0.0)
    for _ in range(300):
        headroom.saw(0.001)
    assert not headroom.revise(1.9)
    # First the promise shrinks, and a window later the spacing.
    assert not headroom.revise(2.0)
    assert headroom.late_s == 0.01
    assert headroom.revise(4.0)
    assert headroom.spare_s == 0.01


@pytest.mark.parametrize("exceeded", [None, "rate"])
def test_refusal_at_a_declared_rate_widens_the_headroom_and_lowers_no_limit(exceeded):
    play = one_key(rpm=600)
    for _ in range(50):
        send(play, 0.001)
    send(play, 0.001, "rate", exceeded=exceeded)
    assert spacing_s(play) == pytest.approx(0.105)
    status = play.status("p/i/k0")
    assert (status.state, status.estimated, status.widened) == ("up", None, ("k0",))
    # A slice of a second has the same share of headroom.
    assert promised_s(play) == pytest.approx(0.05)


def test_headroom_after_a_refusal_stays_even_if_sends_are_punctual():
    play = one_key(qps=10)
    for _ in range(300):
        send(play, 0.001)
    send(play, 0.001, "rate")
    for _ in range(300):
        send(play, 0.001)
    assert spacing_s(play) == pytest.approx(0.105)


def test_refusals_of_one_burst_count_once_and_the_third_lowers_the_limit():
    play = one_key(rpm=600)
    for request in [granted(play) for _ in range(3)]:
        play.answer(request, "rate", Feedback(is_too_many=True))
    assert spacing_s(play) == pytest.approx(0.105)
    send(play, 0.001, "rate")
    assert spacing_s(play) == pytest.approx(0.11)
    assert play.status("p/i/k0").estimated is None
    send(play, 0.001, "rate")
    assert play.status("p/i/k0").estimated is not None


def test_refusal_at_the_start_widens_the_first_headroom_for_a_while():
    play = one_key(qps=10)
    send(play, 0.001, "rate")
    assert spacing_s(play) == pytest.approx(0.11)
    assert play.status("p/i/k0").estimated is None
    for _ in range(400):
        send(play, 0.001)
    assert spacing_s(play) == pytest.approx(0.101)
    assert play.status("p/i/k0").widened == ()


@pytest.mark.slow
def test_headroom_after_two_refusals_falls_back_to_five_per_cent():
    play = one_key(rpm=600)
    send(play, 0.001, "rate")
    send(play, 0.001, "rate")
    assert spacing_s(play) == pytest.approx(0.11)
    for _ in range(5600):
        send(play, 0.001)
    assert spacing_s(play) == pytest.approx(0.105)


def test_refusal_of_too_many_in_flight_does_not_affect_the_rate():
    play = one_key(qps=10, workers=5)
    for _ in range(300):
        send(play, 0.001)
    send(play, 0.001, "rate", exceeded="in_flight")
    status = play.status("p/i/k0")
    assert status.widened == ()
    assert status.estimated is not None


def test_looser_limit_above_the_binding_limit_costs_nothing():
    above, own = Limit("p", "provider", rpm=660), Limit("k0", "key", qps=10)
    play = Play(pool([lane("i", "k0", "p", "k0")], above, own), late_s=first_late_s)
    for _ in range(300):
        send(play, 0.001)
    assert spacing_s(play) == pytest.approx(0.101)


@pytest.mark.parametrize("level", ["pool", "provider"])
def test_refusal_does_not_affect_limits_of_pool_and_provider(level):
    above, own = Limit("mine", level, rpm=6000), Limit("k0", "key", workers=5)
    play = Play(pool([lane("i", "k0", "mine", "k0")], above, own), late_s=first_late_s)
    send(play, 0.001, "rate")
    status = play.status("p/i/k0")
    assert status.widened == ()
    assert status.estimated is not None


@pytest.mark.parametrize("said", [{"is_too_many": False}, {"exceeded": "tokens"}])
def test_overloaded_server_and_too_many_tokens_do_not_affect_the_rate(said):
    play = one_key(rpm=600)
    send(play, 0.001, "rate", **said)
    status = play.status("p/i/k0")
    assert status.widened == ()
    assert status.estimated is not None


def test_refusal_of_too_many_tokens_widens_their_spacing_for_a_while():
    play = one_key(tpm=6000)
    for outcome in ("rate", "rate"):
        request = granted(play, tokens=100)
        play.answer(request, outcome, Feedback(is_too_many=True, exceeded="tokens"))
    assert play.status("p/i/k0").estimated is None
    play.wait(601)
    granted(play, tokens=6000)
    began_s = play.now_s
    granted(play, tokens=6000)
    assert play.now_s - began_s == pytest.approx(63.0)


def test_worker_that_dies_with_a_lease_counts_as_a_late_send():
    play = one_key(qps=10)
    request = granted(play, worker="gw1")
    first_s = play.leases[request].granted_s
    play.wait(0.08)
    play.leave("gw1")
    assert play.leases[granted(play)].granted_s - first_s == pytest.approx(0.105 + 0.03)


def test_repeated_refusals_lower_a_declared_limit():
    play = one_key(qps=10)
    for _ in range(3):
        send(play, 0.001, "rate")
        for _ in range(120):
            send(play, 0.001)
    assert play.status("p/i/k0").estimated is not None
