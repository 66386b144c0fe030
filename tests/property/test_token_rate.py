"""Tokens in any window, for any requests, estimates and corrections, in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.throttles import MAX_CREDIT, TokenPacer

WINDOW_S = 60.0


@dataclass
class Send:
    at_s: float
    reserved: int
    used: int


@dataclass(frozen=True)
class Wish:
    """A request: the pause before it, its sizes, and its duration."""

    after_s: float
    reserved: int
    used: int
    takes_s: float


def wishes(limit: int, *, honest: bool) -> st.SearchStrategy[list[Wish]]:
    sizes = st.integers(0, limit) | st.integers(0, max(1, limit // 20))
    used = sizes.flatmap(
        lambda most: st.tuples(st.just(most), st.integers(0, most if honest else 2 * limit))
    )
    seconds = st.floats(0, 90) | st.just(0.0)
    return st.lists(
        st.builds(lambda after, both, takes: Wish(after, *both, takes), seconds, used, seconds),
        max_size=40,
    )


def play(limiter: TokenPacer, asked: list[Wish]) -> list[Send]:
    """Send each request as soon as it is allowed, and correct it when its answer comes."""
    sends: list[Send] = []
    pending: list[tuple[float, int, object]] = []
    now_s = 1e7
    for wish in asked:
        now_s += wish.after_s
        while True:
            due = sorted((end for end in pending if end[0] <= now_s), key=lambda end: end[0])
            for end in due:
                pending.remove(end)
                limiter.settle(end[2], end[1], now_s)
            ready_s = limiter.ready_at_s(wish.reserved, now_s)
            if ready_s <= now_s:
                break
            now_s = min([ready_s, *(end[0] for end in pending)])
        reservation = limiter.reserve(wish.reserved, now_s)
        sends.append(Send(now_s, wish.reserved, wish.used))
        pending.append((now_s + wish.takes_s, wish.used, reservation))
    return sends


def most_in_window(sends: list[Send]) -> int:
    return max(
        (
            sum(one.used for one in sends if first.at_s <= one.at_s < first.at_s + WINDOW_S)
            for first in sends
        ),
        default=0,
    )


limits = st.integers(1, 100_000)


@given(limits.flatmap(lambda limit: st.tuples(st.just(limit), wishes(limit, honest=True))))
def test_tokens_used_in_any_window_are_never_above_the_limit(case):
    limit, asked = case
    assert most_in_window(play(TokenPacer(limit, WINDOW_S), asked)) <= limit


@given(limits.flatmap(lambda limit: st.tuples(st.just(limit), wishes(limit, honest=True))))
def test_sends_are_spaced_by_their_tokens_except_after_refunds(case):
    limit, asked = case
    sends = play(TokenPacer(limit, WINDOW_S), asked)
    for first in range(len(sends)):
        for last in range(first + 1, len(sends)):
            elapsed_s = sends[last].at_s - sends[first].at_s
            used = sum(one.used for one in sends[first:last])
            allowed = limit * (elapsed_s / WINDOW_S + MAX_CREDIT)
            # A refund may come from a send before the first of these.
            assert used <= allowed + limit * 1e-6 + sum(
                one.reserved - one.used for one in sends[:first]
            )


@given(limits.flatmap(lambda limit: st.tuples(st.just(limit), wishes(limit, honest=False))))
def test_debt_delays_the_next_send_by_a_window_at_most(case):
    limit, asked = case
    limiter = TokenPacer(limit, WINDOW_S)
    now_s = 0.0
    for wish in asked:
        now_s = limiter.ready_at_s(wish.reserved, now_s + wish.after_s)
        reservation = limiter.reserve(wish.reserved, now_s)
        limiter.settle(reservation, wish.used, now_s)
        if wish.used > wish.reserved:
            owed_s = (wish.used - wish.reserved) * WINDOW_S / limit
            assert limiter.ready_at_s(0, now_s) >= now_s + min(owed_s, WINDOW_S) * (1 - 1e-9)
        assert limiter.ready_at_s(0, now_s) <= now_s + WINDOW_S + 1e-6


def test_absurd_count_delays_the_next_send_by_one_window():
    limiter = TokenPacer(100_000, WINDOW_S)
    limiter.settle(limiter.reserve(500, 5.0), 10**12, 6.0)
    assert limiter.ready_at_s(100, 6.0) == pytest.approx(6.0 + WINDOW_S)


@given(
    limit=limits,
    asked=st.lists(st.integers(1, 100), min_size=1, max_size=50),
    start_s=st.floats(0, 1e8),
)
def test_reported_time_is_the_earliest_at_which_a_send_is_allowed(limit, asked, start_s):
    limiter = TokenPacer(limit, WINDOW_S)
    now_s = start_s
    for size in asked:
        tokens = min(limit, size)
        ready_s = limiter.ready_at_s(tokens, now_s)
        if ready_s > now_s:
            with pytest.raises(ValueError, match="too early"):
                limiter.reserve(tokens, math.nextafter(ready_s, -math.inf))
        limiter.reserve(tokens, ready_s)
        now_s = ready_s


def test_window_does_not_begin_with_a_burst():
    limiter = TokenPacer(60_000, WINDOW_S)
    at_s = []
    now_s = 0.0
    for _ in range(60):
        now_s = limiter.ready_at_s(1000, now_s)
        limiter.reserve(1000, now_s)
        at_s.append(now_s)
    assert at_s == pytest.approx(list(range(60)))
    assert limiter.ready_at_s(1000, now_s) >= WINDOW_S


def test_request_of_the_limits_size_needs_an_empty_window_and_a_larger_one_never_fits():
    limiter = TokenPacer(1000, WINDOW_S)
    limiter.reserve(10, 5.0)
    assert limiter.ready_at_s(1000, 6.0) == pytest.approx(65.0)
    assert limiter.ready_at_s(1001, 6.0) == math.inf


def test_sends_follow_the_real_usage_when_estimates_are_too_large():
    limiter = TokenPacer(60_000, WINDOW_S)
    sends = play(limiter, [Wish(0.0, 4000, 1000, 3.0)] * 200)
    used_per_s = sum(one.used for one in sends) / (sends[-1].at_s - sends[0].at_s)
    # Reservations that are too large occupy 3 s; without refunds it would be 250.
    assert 850 <= used_per_s <= 1010
    assert most_in_window(sends) <= 60_000


@pytest.mark.parametrize(
    ("limit", "window_s"), [(0, 60), (math.inf, 60), (math.nan, 60), (10, 0), (10, math.inf)]
)
def test_invalid_limiter_is_refused(limit, window_s):
    with pytest.raises(ValueError, match="limit must be"):
        TokenPacer(limit, window_s)
