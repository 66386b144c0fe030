from __future__ import annotations

import random

from pytest_ultrapar.apis.failure_classes import FAILURES, NOBODY_LISTENS
from pytest_ultrapar.broker.health import Breaker


def breaker(seed: int = 0) -> Breaker:
    return Breaker(random.Random(seed))


def opened(one: Breaker, at_s: float = 0.0) -> Breaker:
    for n in range(5):
        one.failed(FAILURES, at_s + n, at_s + n)
    assert one.state == "open"
    return one


def probe(one: Breaker, at_s: float) -> None:
    one.wake(at_s)
    one.probe(at_s)


def test_breaker_counts_failures_from_zero_after_an_answer():
    one = breaker()
    for n in range(100):
        for _ in range(5):
            one.answered(n, n)
        assert not any(one.failed(FAILURES, n, n) for _ in range(4))
    assert one.n_opened == 0


def test_breaker_opens_when_most_of_ten_in_half_a_minute_failed():
    one = breaker()
    results = []
    for n in range(6):
        # Never two failures in a row, but more failures than answers in the end.
        if n < 5:
            one.answered(n, n)
        results.append(one.failed(FAILURES, n + 0.5, n + 0.5))
    assert results == [False] * 5 + [True]


def test_breaker_forgets_results_older_than_half_a_minute():
    one = breaker()
    for n in range(4):
        one.failed(FAILURES, n, n)
        one.answered(n, n)
    for n in range(40, 45):
        assert not one.failed(FAILURES, n, n)
        one.answered(n, n)


def test_breaker_stays_open_twice_as_long_each_time_up_to_two_minutes():
    one, now_s, spans_s = opened(breaker(), at_s=-4.0), 0.0, []
    for _ in range(8):
        spans_s.append(one.until_s - now_s)
        now_s = one.until_s
        probe(one, now_s)
        assert one.failed(FAILURES, now_s, now_s)
    for span_s, base_s in zip(spans_s, [5, 10, 20, 40, 80, 120, 120, 120], strict=True):
        assert base_s <= span_s <= 1.1 * base_s
    assert one.n_opened == 1


def test_breaker_opens_for_the_shortest_time_after_an_answer():
    one = opened(breaker())
    for _ in range(3):
        probe(one, one.until_s)
        one.failed(FAILURES, one.until_s, one.until_s)
    probe(one, one.until_s)
    assert one.answered(one.until_s, one.until_s + 1)
    assert one.state == "closed"
    at_s = one.until_s + 10
    opened(one, at_s)
    assert 5.0 <= one.until_s - at_s - 4 <= 5.5
    assert one.n_opened == 2


def test_breaker_ignores_requests_that_were_sent_before_it_opened():
    one = opened(breaker())
    assert not one.failed(FAILURES, 1.0, 5.0)
    assert not one.answered(1.0, 5.0)
    probe(one, one.until_s)
    assert not one.failed(FAILURES, 1.0, one.until_s + 1)
    assert not one.answered(1.0, one.until_s + 1)
    assert one.state == "probing"
    assert one.answered(one.until_s, one.until_s + 2)
    # The last old requests come back. They say nothing about the lane's present state.
    assert not any(one.failed(FAILURES, 1.0, one.until_s + 3) for _ in range(20))


def test_breaker_for_refused_connections_is_quick():
    one = breaker()
    assert one.failed(NOBODY_LISTENS, 0.0, 0.0)
    assert 0.25 <= one.until_s <= 0.275
    now_s = one.until_s
    probe(one, now_s)
    # The server listens again but is not ready, so another rule starts from its beginning.
    assert one.failed(FAILURES, now_s, now_s)
    assert 5.0 <= one.until_s - now_s <= 5.5


def test_breaker_knows_since_when_no_request_was_answered():
    one = breaker()
    one.answered(10.0, 12.0)
    assert one.silent_since_s is None
    one.failed(FAILURES, 11.0, 20.0)
    assert one.silent_since_s == 12.0
    one.answered(13.0, 21.0)
    one.failed(FAILURES, 25.0, 30.0)
    assert one.silent_since_s == 25.0


def test_few_failures_do_not_open_the_breaker_while_many_requests_are_in_flight():
    one = breaker()
    assert not any(one.failed(FAILURES, 0.0, 0.1, pending=95) for _ in range(20))
    assert any(one.failed(FAILURES, 0.0, 0.2, pending=80) for _ in range(20))
    assert one.n_in_row == 40
