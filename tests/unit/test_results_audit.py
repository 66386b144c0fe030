"""The audit compares the run's records with its limits and reports exceeded limits."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.requests import audit, peak_in_flight
from pytest_ultrapar.pool.model import Limit
from tests.pools import lane
from tests.unit.request_logs import episode, log_of, request

moments = st.integers(0, 40).map(lambda tick: tick / 4)
stretches = st.lists(st.tuples(moments, moments), min_size=1, max_size=12)


def of(stretches_s, *limits, lanes=None):
    requests = (episode(request(a, b)) for a, b in stretches_s)
    log = log_of(lanes or [lane("i0", "k", *(limit.name for limit in limits))], *requests)
    return audit(log, limits)


def test_audit_counts_the_requests_on_a_limit():
    (found,) = of([(0.0, 1.0), (0.5, 2.0), (0.9, 0.95)], Limit("p/k", "key", 5, 18.0, 100.0))
    assert (found.limit, found.n, found.in_flight, found.sends_1s) == ("p/k", 3, 3, 3)
    assert (found.workers, found.qps, found.rpm, found.passed) == (5, 18.0, 100.0, ())


def test_audit_names_each_exceeded_limit():
    calls = [(0.0, 1.0), (0.5, 2.0), (0.9, 0.95)]
    (found,) = of(calls, Limit("p/k", "key", 2, 2.0, 2.0))
    assert found.passed == ("workers", "qps", "rpm")


def test_audit_lists_keys_without_a_limit():
    lanes = [lane("i0", "k", "p/i0"), lane("i1", "k")]
    log = log_of(lanes, episode(request(0, 2)), episode(request(1, 2, on=1)))
    instance, key = audit(log, [Limit("p/i0", "instance", 1), Limit("p/unused", "key", 1)])
    assert (instance.limit, instance.in_flight) == ("p/i0", 1)
    assert (key.limit, key.in_flight, key.workers, key.sends_60s) == ("p/k", 2, None, 2)


def test_audit_counts_the_tokens_of_a_minute_if_they_are_limited():
    sends = [(0.0, 300, 100), (59.0, 200, None), (61.0, 500, 50)]
    log = log_of(
        [lane("i0", "k", "p/k", "p/i0")],
        *(episode(request(at, at + 1, tokens_in=i, tokens_out=o)) for at, i, o in sends),
    )
    key, instance = audit(log, [Limit("p/k", "key", tpm=750), Limit("p/i0", "instance", 1)])
    assert (key.tokens_60s, key.tpm, key.passed) == (750, 750, ())
    assert (instance.tokens_60s, instance.tpm) == (None, None)
    (key,) = audit(log, [Limit("p/k", "key", tpm=700)])
    assert key.passed == ("tpm",)


def test_requests_outside_the_makespan_are_audited_too():
    log = log_of(
        [lane("i0", "k", "p/k")], episode(request(0, 2)), episode(request(1, 2)), measured=False
    )
    (found,) = audit(log, [Limit("p/k", "key", 1)])
    assert found.passed == ("workers",)
    assert peak_in_flight(log) == 2


@given(stretches)
def test_audit_agrees_with_a_count_at_each_send(calls):
    calls = [(min(pair), max(pair) + 0.125) for pair in calls]
    (found,) = of(calls, Limit("p/k", "key"))
    starts = [start for start, _ in calls]
    assert found.in_flight == max(sum(a <= t < b for a, b in calls) for t in starts)
    assert found.sends_1s == max(sum(t - 1 <= s <= t for s in starts) for t in starts)
    assert found.sends_60s == len(calls)


def test_any_24_hours_are_audited():
    calls = [(n * 3600.0, n * 3600.0 + 1.0) for n in range(30)]
    (found,) = of(calls, Limit("p/k", "key", rpd=24))
    assert (found.sends_1d, found.rpd, found.passed) == (25, 24, ("rpd",))
    (found,) = of(calls, Limit("p/k", "key", qps=2.0))
    assert b"1d" not in msgspec.json.encode(found)


def test_calendar_days_are_audited_in_the_zone_of_the_limit():
    # 30 hours from 15:00 in Los Angeles: 9 hours of one day and 21 of the next.
    first_s = datetime(2026, 11, 22, 23, tzinfo=UTC).timestamp()
    log = log_of(
        [lane("i0", "k", "p/k")],
        *(
            # At that time the monotonic clock read a million seconds.
            episode(
                request(1e6 + n * 3600, 1e6 + n * 3600 + 1, tokens_in=10),
                at_us=int((first_s + n * 3600) * 1e6),
            )
            for n in range(30)
        ),
    )
    (found,) = audit(log, [Limit("p/k", "key", rpd=21, tpd=209, day="America/Los_Angeles")])
    assert (found.sends_1d, found.tokens_1d, found.passed) == (21, 210, ("tpd",))
    (found,) = audit(log, [Limit("p/k", "key", rpd=20, day="America/Los_Angeles")])
    assert found.passed == ("rpd",)


def test_columns_are_built_once_and_again_after_new_requests():
    log = log_of([lane("i0", "k")], episode(request(0.0, 1.0)))
    columns = log.columns()
    assert log.columns() is columns
    log.add(episode(request(2.0, 3.0)), measured=True)
    assert log.columns().sent_s.tolist() == [0.0, 2.0]
    assert columns.sent_s.tolist() == [0.0]
