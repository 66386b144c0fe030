"""Breaker, retry budget and Retry-After under random events."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.failure_classes import FAILURES, NOBODY_LISTENS
from pytest_ultrapar.apis.retry_after import LONGEST_S, parse_retry_after, parse_should_retry
from pytest_ultrapar.broker.health import JITTER, Breaker
from pytest_ultrapar.broker.retry_budget import FIXED, SHARE, ParkedRetry, RetryBudget
from tests.examples import examples

RULES = {"failed": FAILURES, "connect": NOBODY_LISTENS}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grant"] * 3 + ["ok", "failed", "failed", "connect", "void", "wake"]),
        st.integers(0, 7),
        # The clock stands still, runs, jumps an hour ahead, or back.
        st.sampled_from([0.0, 0.0, 0.01, 0.5, 3.0, 30.0, 3600.0, -3600.0]),
    ),
    max_size=120,
)


@dataclass
class Lease:
    granted_s: float
    is_probe: bool


class Lane:
    """A breaker in use, with the leases in flight."""

    def __init__(self, seed: int) -> None:
        self.breaker = Breaker(random.Random(seed))
        self.now_s = 1000.0
        self.out: list[Lease] = []
        self.n_failed = 0

    def wake(self) -> None:
        was_open = self.breaker.state == "open"
        self.breaker.wake(self.now_s)
        if was_open and self.breaker.state == "half_open":
            # By its own clock, which a jump of the wall clock does not turn back.
            assert self.breaker._now_s >= self.breaker.until_s

    def grant(self) -> None:
        is_probe = self.breaker.state == "half_open"
        if is_probe:
            self.breaker.probe(self.now_s)
        elif self.breaker.state != "closed":
            return
        self.out.append(Lease(self.now_s, is_probe))
        assert not is_probe or sum(one.is_probe for one in self.out) == 1

    def back(self, one: Lease, what: str) -> None:
        if what == "ok":
            self.breaker.answered(one.granted_s, self.now_s)
        elif what == "void":
            self.breaker.void(one.granted_s)
        else:
            self.n_failed += 1
            rule = RULES[what]
            if self.breaker.failed(rule, one.granted_s, self.now_s):
                assert self.breaker.state == "open"
                open_s = self.breaker.until_s - self.breaker._now_s
                assert rule.base_s <= open_s <= rule.cap_s * (1 + JITTER) + 1e-6


@examples(300)
@given(STEPS, st.integers(0, 2**32))
def test_breaker_admits_one_probe_at_a_time_and_opens_only_after_failures(steps, seed):
    lane = Lane(seed)
    for what, which, by_s in steps:
        lane.now_s = max(0.0, lane.now_s + by_s)
        if what == "wake":
            lane.wake()
        elif what == "grant":
            lane.grant()
        elif lane.out:
            lane.back(lane.out.pop(which % len(lane.out)), what)
        if lane.breaker.state != "probing":
            # A request still in flight from an earlier probe was given up, by a wake at its term's
            # end.
            for one in lane.out:
                one.is_probe = False
        assert lane.breaker.n_opened <= lane.n_failed
        assert lane.breaker.state == "closed" or lane.breaker.n_opened


RETRY_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["first", "retry", "retry", "probe ok", "probe failed", "probe gone", "answer"]
        ),
        st.sampled_from([0.0, 0.0, 0.3, 1.0, 7.0, 31.0]),
    ),
    max_size=200,
)


@examples(200)
@given(RETRY_STEPS)
def test_retries_are_never_more_than_the_budget_and_one_probe_at_a_time(steps):
    budget, now_s = RetryBudget(), 0.0
    n_first, n_asked, n_gone, n_probes = 1, 0, 0, 0
    failed_s, n_failed, is_out, answered = 0.0, 0, False, False
    for what, by_s in steps:
        now_s += by_s
        if what == "first":
            n_first += 1
        elif what == "retry":
            n_asked += 1
            if budget.draw(n_first):
                n_gone += 1
            else:
                worker = SimpleNamespace(name="gw0")
                budget.park(ParkedRetry(worker, SimpleNamespace(request_id=n_asked), now_s), now_s)
        elif what == "answer":
            budget.answered(now_s)
            n_failed, answered = 0, True
        elif is_out:
            is_out = False
            if what == "probe failed":
                budget.probe_failed(now_s)
                failed_s, n_failed, answered = now_s, n_failed + 1, False
            else:
                budget.probe_over()
        while (taken := budget.take(n_first, now_s)) is not None:
            n_gone += 1
            if taken[1]:
                assert not is_out, "two probes at the same time"
                if n_failed and not answered:
                    assert now_s >= failed_s + min(30.0, 2.0 ** (n_failed - 1))
                is_out, n_probes = True, n_probes + 1
        assert n_gone + len(budget.parked) == n_asked, "a retry was lost or duplicated"
        assert n_gone - n_probes <= FIXED + SHARE * n_first
        # A waiting request knows its next time to check, or waits for the probe in flight.
        assert not budget.parked or is_out or budget.next_probe_s is not None


HEADER = st.one_of(
    st.text(),
    st.text("0123456789.,-+eE_ infan", max_size=12),
    st.floats().map(str),
    st.datetimes().map(lambda at: at.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    st.sampled_from(["Thu, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2400", "\x00"]),
)


@examples(100)
@given(HEADER, HEADER, st.floats(-1e12, 1e12))
def test_retry_after_never_fails_and_stays_bounded(seconds, millis, epoch_s):
    for headers in (
        {"retry-after": seconds},
        {"retry-after-ms": millis},
        {"retry-after": seconds, "retry-after-ms": millis},
    ):
        found = parse_retry_after(headers, epoch_s=epoch_s)
        assert found is None or 0 < found <= LONGEST_S
    assert parse_should_retry({"x-should-retry": seconds}) in {True, False, None}
