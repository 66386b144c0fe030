from __future__ import annotations

import multiprocessing
import os
import time

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.classify import classify_status
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.limits import (
    DayWindow,
    Gate,
    Lateness,
    LimitPath,
    Window,
)
from pytest_ultrapar.simulator.wire.chat import RESOURCE
from pytest_ultrapar.system.clock import CpuWaits
from tests.played_clock import PlayedDayClock

# Eighths of a second are exact in binary, so that the judges below may compare with `==`.
TICKS = st.integers(min_value=0, max_value=12).map(lambda n: n / 8)
CALLS = st.lists(st.tuples(TICKS, st.one_of(st.just(1), st.integers(0, 30))), max_size=60)


RATES = st.one_of(st.integers(1, 60), st.floats(0.2, 6.5))


@given(calls=CALLS, rate=RATES)
def test_window_admits_its_rate_and_one_more_call(calls, rate):
    window = Window(rate, 1.0)
    admitted: list[tuple[float, int]] = []
    now_s = 0.0
    for gap_s, n in calls:
        now_s += gap_s
        inside = sum(units for t, units in admitted if now_s - 1.0 < t <= now_s)
        wait_s = window.wait_s(now_s)
        assert (wait_s == 0.0) == (inside <= rate)
        if wait_s > 0.0:
            assert window.wait_s(now_s + wait_s - 1 / 16) > 0.0
            now_s += wait_s
            assert window.wait_s(now_s) == 0.0
        window.arrive(now_s, n)
        admitted.append((now_s, n))
    for t, _ in admitted:
        inside = [units for other, units in admitted if t <= other < t + 1.0]
        assert sum(inside[:-1]) <= rate


def test_window_with_a_lowered_rate_waits_for_all_excess_calls():
    window = Window(4.0, 1.0)
    for t in (0.0, 0.25, 0.5, 0.75):
        window.arrive(t)
    window.rate = 1.0
    assert window.wait_s(0.75) == 0.75
    assert window.wait_s(1.5) == 0.0


def test_gate_counts_tokens_if_it_has_tpm():
    gate = Gate(Limit("k", "key"))
    gate.hold({"tpm": 100.0})
    path = LimitPath([gate])
    assert path.admit(0.0, 90) is None
    assert path.admit(1.0, 40) is None
    exceeded = path.admit(2.0, 1)
    assert exceeded is not None
    assert (exceeded.bound, exceeded.allowed, exceeded.retry_after_s) == ("tpm", 100.0, 58.0)
    assert path.admit(60.0, 1) is None


def judged(path, lateness, reads):
    """Whether each request is refused, by the time of its read and the CPU wait until then."""
    return [
        path.admit(now_s, since_s=lateness.since_s(now_s, waited_s)) is not None
        for now_s, waited_s in reads
    ]


def test_server_without_cpu_does_not_refuse_evenly_spaced_requests():
    """Ten requests a second. The server has no CPU from 1.0 to 1.5 s, then reads six requests."""
    sent = [n / 10 for n in range(40)]
    reads = [
        (1.5 + n / 1000 if 1.0 <= at_s <= 1.5 else at_s, 0.5 * (at_s >= 1.0))
        for n, at_s in enumerate(sent)
    ]
    assert not any(judged(LimitPath([Gate(Limit("k", "key", qps=10))]), Lateness(0.0), reads))
    # A server that does not know its wait counts six requests too many in the next second.
    unaware = [(now_s, 0.0) for now_s, _ in reads]
    assert any(judged(LimitPath([Gate(Limit("k", "key", qps=10))]), Lateness(0.0), unaware))


def test_server_without_cpu_refuses_requests_beyond_the_limit():
    reads = [(1.5 + n / 1000, 0.5 + 0.004 * (n >= 3)) for n in range(30)]
    refused = judged(LimitPath([Gate(Limit("k", "key", qps=10))]), Lateness(0.0), reads)
    assert refused == [False] * 11 + [True] * 19


def spin(seconds):
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def test_kernel_reports_how_long_a_process_waited_for_a_cpu():
    allowed = os.sched_getaffinity(0)
    other = multiprocessing.get_context("fork").Process(target=spin, args=(0.2,))
    try:
        os.sched_setaffinity(0, {min(allowed)})
        other.start()
        waits = CpuWaits()
        before_s = waits.total_s()
        spin(0.1)
        assert 0 < waits.total_s() - before_s < 10
    finally:
        os.sched_setaffinity(0, allowed)
        other.join()


NOON_S = 1_700_049_600.0


def test_day_meter_counts_any_24_hours_exactly():
    meter = DayWindow(2.0, 86_400.0, None, PlayedDayClock(NOON_S))
    for t in (0.0, 3600.0):
        assert meter.wait_s(t) == 0.0
        meter.arrive(t)
    assert meter.wait_s(7200.0) == 79_200.0
    assert meter.wait_s(86_400.0) == 0.0
    meter.arrive(86_400.0)
    assert meter.wait_s(86_400.0) == 3600.0


def test_day_meter_with_a_time_zone_restarts_at_midnight():
    # Noon of 2023-11-15 by UTC is 04:00 in Los Angeles.
    meter = DayWindow(1.0, 86_400.0, "America/Los_Angeles", PlayedDayClock(NOON_S))
    meter.arrive(0.0)
    assert meter.wait_s(0.0) == 20 * 3600
    assert meter.wait_s(20 * 3600 - 1.0) == 1.0
    assert meter.wait_s(20 * 3600.0) == 0.0


def test_refusal_of_a_daily_limit_reads_like_a_real_providers():
    limit = Limit("lab/key0", "key", rpd=1)
    path = LimitPath([Gate(limit, PlayedDayClock(NOON_S))])
    assert path.admit(0.0) is None
    exceeded = path.admit(60.0)
    assert exceeded is not None
    refusal = ApiError.over_limit(exceeded)
    assert refusal.status == 429
    assert "Rate limit reached for lab/key0: 1 requests per day (RPD)" in refusal.message
    assert classify_status(429, RESOURCE.refusal(refusal).body, None).outcome == "daily_quota"
