"""A host whose clock drifts gets no share of a rate, and a message with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.shares import DRIFT, rows_of
from pytest_ultrapar.cluster.clock_drift import STEP_S, STRETCH_S, ClockDrift
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.played_cluster import Cluster
from tests.pools import lane, pool

calls = st.lists(
    st.tuples(st.floats(0.3, 5.0), st.floats(0.0, 0.4), st.floats(0.0, 1.0)),
    min_size=30,
    max_size=120,
)
"""The pause before a call, its duration, and when during the call the server reads its clock."""


def looks(rate, said, steps_s=()):
    """The drift that a host with a clock of `rate` sees; `steps_s` set the server's clock."""
    clock, now_s, ahead_s = ClockDrift(), 1000.0, 5e8
    for number, (pause_s, took_s, part) in enumerate(said):
        ahead_s += steps_s[number] if number < len(steps_s) else 0.0
        begun_s = now_s + pause_s
        now_s = begun_s + took_s
        server_s = (begun_s + part * took_s) / rate + ahead_s
        clock.record(begun_s, now_s, int(server_s * 1000) / 1000)
        yield clock.trouble


@given(calls, st.floats(1 / DRIFT, DRIFT))
def test_clock_within_the_allowed_drift_is_never_reported(said, rate):
    assert not any(looks(rate, said))


@pytest.mark.slow
@given(calls, st.lists(st.one_of(st.just(0.0), st.floats(-900, 900)), max_size=120))
def test_steps_of_the_servers_clock_are_not_reported_as_drift(said, steps_s):
    large = [0.0 if abs(step_s) < STEP_S + 0.8 else step_s for step_s in steps_s]
    assert not any(looks(1.0, said, large))


@given(calls, st.floats(-STEP_S, STEP_S))
def test_one_slew_by_a_time_service_is_not_reported_as_drift(said, step_s):
    assert not any(looks(1.0, said, [0.0] * 15 + [step_s]))


@given(st.sampled_from([0.9, 0.955, 1.045, 1.1]), st.floats(0.0, 1.0))
def test_drifting_clock_is_reported_soon_until_it_runs_right_again(rate, part):
    wrong = list(looks(rate, [(0.7, 0.1, part)] * 100))
    assert not any(wrong[: int(STRETCH_S / 0.8)])
    assert all(wrong[int(STRETCH_S / 0.8) + 2 :])
    assert ("faster" if rate > 1 else "slower") in wrong[-1]

    clock = ClockDrift()
    for number in range(200):
        at_s = number * 0.8
        goes_wrong_s = min(at_s, 60.0)
        clock.record(at_s, at_s + 0.01, goes_wrong_s / rate + at_s - goes_wrong_s)
        if 40 < at_s < 60:
            assert clock.trouble
    assert not clock.trouble


def test_host_with_a_drifting_clock_gets_no_share_of_a_rate_and_reports_why():
    keys = pool([lane("a", "k", "k")], Limit("k", "key", qps=20, workers=30))
    shared = rows_of(keys)
    cluster = Cluster()
    good, bad = (Play(keys, shared=shared) for _ in range(2))
    for host in (good, bad):
        host.connect("gw0")
        cluster.join(host, keys)
    cluster.wait(STRETCH_S)
    assert rates(good) == rates(bad) == 10
    assert good.broker.trouble == bad.broker.trouble == ""
    cluster.speed(bad, 1.05)
    cluster.wait(STRETCH_S + 5)
    assert "clock runs 5.0% faster than the cluster server's" in bad.broker.trouble
    assert good.broker.trouble == ""
    assert (rates(good), rates(bad)) == (20, 0)
    assert seats(bad) > 0, "seats are not spaced by any clock"
    cluster.speed(bad, 1.0)
    cluster.wait(STRETCH_S + 5)
    assert bad.broker.trouble == ""
    assert rates(good) == rates(bad) == 10


def rates(host):
    return next(share.share for share in host.broker.shares if share.word == "qps")


def seats(host):
    return next(share.share for share in host.broker.shares if share.word == "workers")
