"""Adaptive mode on servers that queue: it stops when more requests bring no more answers.

The production broker runs in virtual time, with answers that take 0.2 to 20 s.
"""

from __future__ import annotations

import statistics

import pytest

from benchmarks.adaptive.play import LimitPlay
from benchmarks.adaptive.provider import Bears, Provider

SEEDS = range(3)
ANSWERS_S = (0.2, 1.0, 5.0, 20.0)


def played(provider, span_s, from_s, seed):
    """The peak in flight, and the share of the provider's best throughput since `from_s`."""
    play = LimitPlay(provider, ceiling=1_000, seed=seed, span_s=span_s)
    said = play.run()
    # Some requests time out twice while the search finds the limit.
    assert said.n_infra <= 0.002 * said.attempts
    n_late = sum(from_s <= at_s <= span_s for at_s in play.served_s)
    return said.peak, n_late / play.best(from_s, span_s)


def check(provider, knee, *, span=100.0, since=15.0):
    """Check peak and throughput; `span` and `since` are multiples of an answer's time."""
    answer_s = provider.typical_s
    seen = [played(provider, span * answer_s, since * answer_s, seed) for seed in SEEDS]
    assert max(peak for peak, _ in seen) <= max(4 * knee, 64)
    assert statistics.median(used for _, used in seen) >= 0.9


@pytest.mark.parametrize("answer_s", ANSWERS_S)
def test_growth_ends_when_it_brings_no_more_answers(answer_s):
    check(Provider(knee=8, typical_s=answer_s), 8)


def of_short_runs(knee, ceiling=1_000):
    """Two medians over short runs: p50 of a request's time, and requests per second.

    Both are relative to a run with as many requests in flight as the server works on.
    """
    longer, as_fast = [], []
    for seed in range(6):
        provider = Provider(knee=knee, typical_s=1.3)
        settings = {"seed": seed, "span_s": 2_000.0, "n_requests": 37 * knee}
        fixed = LimitPlay(provider, ceiling=knee, rate_mode="fixed", **settings)
        found = LimitPlay(provider, ceiling=ceiling, **settings)
        known_s, took_s = fixed.run().end_s, found.run().end_s
        longer.append(statistics.median(found.answers_s) / statistics.median(fixed.answers_s))
        as_fast.append(known_s / took_s)
    return statistics.median(longer), statistics.median(as_fast)


@pytest.mark.parametrize("ceiling", [1_000, 20])
def test_short_run_keeps_no_useless_requests_in_flight(ceiling):
    longer, as_fast = of_short_runs(8, ceiling)
    assert longer <= 1.5
    assert as_fast >= 0.95


@pytest.mark.parametrize("answer_s", ANSWERS_S)
def test_requests_that_time_out_lower_the_seats(answer_s):
    # The server still works on abandoned requests: at 32 at once all time out, at 24 nearly all.
    check(Provider(knee=8, typical_s=answer_s, timeout_s=4 * answer_s), 8)


@pytest.mark.slow
@pytest.mark.parametrize("answer_s", ANSWERS_S)
@pytest.mark.parametrize("timeout", [4, 1e9])
def test_larger_server_is_used_but_not_overloaded(answer_s, timeout):
    check(Provider(knee=64, typical_s=answer_s, timeout_s=timeout * answer_s), 64)


@pytest.mark.slow
@pytest.mark.parametrize("answer_s", ANSWERS_S)
@pytest.mark.parametrize(("before", "after", "found"), [(32, 8, 15), (8, 32, 15)])
def test_seats_follow_a_server_that_changes(answer_s, before, after, found):
    bears = (Bears(knee=before), Bears(100 * answer_s, knee=after))
    check(Provider(bears, typical_s=answer_s), 32, span=200.0, since=100.0 + found)


@pytest.mark.slow
@pytest.mark.parametrize("answer_s", ANSWERS_S)
def test_server_that_refuses_is_used_when_its_limit_grows(answer_s):
    bears = (Bears(seats=10), Bears(100 * answer_s, seats=40))
    check(Provider(bears, typical_s=answer_s), 40, span=200.0, since=115.0)


@pytest.mark.parametrize("answer_s", ANSWERS_S)
def test_limit_of_a_server_that_refuses_is_found_at_any_answer_time(answer_s):
    check(Provider((Bears(seats=8),), typical_s=answer_s), 8)
