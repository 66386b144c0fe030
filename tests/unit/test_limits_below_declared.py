"""Fixed mode on providers that allow less than the pool declares, in virtual time."""

from __future__ import annotations

import operator
import statistics

import pytest

from benchmarks.adaptive.play import LimitPlay, Outcome
from benchmarks.adaptive.provider import Bears, Provider

DECLARED, N = 20, 600
SEATS = {seats: Bears(seats=seats) for seats in (2, 8)}
RATES = {rate: Bears(rate=rate) for rate in (1.0, 5.0)}


def play(provider: Provider, **settings: object) -> Outcome:
    defaults = {"ceiling": DECLARED, "rate_mode": "fixed", "n_requests": N, "seed": 1}
    return LimitPlay(provider, span_s=36_000.0, **(defaults | settings)).run()


def check(found: Outcome, known: Outcome) -> None:
    assert found.n_infra == 0
    assert found.n_refused_late <= 0.10 * N
    assert found.end_s <= 1.3 * known.end_s


@pytest.mark.parametrize("refusal", ["rate", "overload"])
@pytest.mark.parametrize("seats", SEATS)
def test_fewer_seats_than_declared_cost_no_case_and_little_time(seats, refusal):
    provider = Provider((SEATS[seats],), typical_s=0.2, refusal=refusal)
    found = play(provider)
    check(found, play(provider, ceiling=seats))
    assert found.peak <= DECLARED


@pytest.mark.parametrize("refusal", ["rate", "overload"])
@pytest.mark.parametrize("rate", RATES)
def test_lower_rate_than_declared_costs_no_case_and_little_time(rate, refusal):
    provider = Provider((RATES[rate],), typical_s=0.2, refusal=refusal)
    check(play(provider), play(provider, qps=rate))


def test_provider_that_counts_by_the_minute_refuses_few_requests():
    found = play(Provider((Bears(per_minute=60),), typical_s=0.2))
    known = play(Provider((Bears(rate=1.0),), typical_s=0.2), qps=1.0)
    assert found.n_infra == 0
    # At first all requests of a minute go at the same time, and then all are refused.
    assert found.n_refused_late <= 0.12 * found.attempts
    assert found.end_s <= 1.1 * known.end_s


@pytest.mark.parametrize("rate_mode", ["fixed", "adaptive"])
def test_low_rate_is_not_treated_as_a_series_of_storms(rate_mode):
    found = play(Provider((Bears(rate=0.2),)), n_requests=100, rate_mode=rate_mode)
    assert found.n_infra == 0
    # There were two refusals per answer when each pause between answers counted as a storm.
    assert found.attempts <= 130
    assert found.end_s <= 1.25 * 100 / 0.2


@pytest.mark.parametrize("begins_s", [0.0, 3.0])
def test_run_recovers_soon_from_a_storm_of_refusals(begins_s):
    calm = (Bears(),) if begins_s else ()
    storm = Bears(begins_s, refuses=True)
    found = play(Provider((*calm, storm, Bears(begins_s + 4.0)), typical_s=0.2), n_requests=2000)
    # 2,000 answers at 20 at once take 20 s.
    assert found.n_infra == 0
    assert found.end_s <= 60.0


@pytest.mark.slow
@pytest.mark.parametrize("rate_mode", ["fixed", "adaptive"])
def test_refused_requests_are_tried_again_one_at_a_time(rate_mode):
    # The provider counts refused requests, so all of them at the same time are refused again.
    provider = Provider(
        (Bears(rate=40),), sigma=0.01, typical_s=0.2, counts_refused=True, refused_after_s=0.003
    )
    known = play(provider, qps=40)
    for seed in range(1, 4):
        found = play(provider, seed=seed, rate_mode=rate_mode)
        assert found.n_infra == 0
        assert found.n_refused_late <= 0.10 * N
        assert found.end_s <= 1.5 * known.end_s


@pytest.mark.slow
@pytest.mark.parametrize("rate_mode", ["fixed", "adaptive"])
def test_rate_limit_without_bursts_is_not_treated_as_one_seat(rate_mode):
    # Two seats suffice if sends are spaced. One seat reaches half of the allowed rate.
    provider = Provider(
        (Bears(rate=10, burst=1),), sigma=0.01, typical_s=0.2, refused_after_s=0.003
    )
    known = play(Provider((Bears(rate=10),), sigma=0.01, typical_s=0.2), qps=10)
    for seed in range(1, 7):
        found = play(provider, seed=seed, rate_mode=rate_mode)
        assert found.n_infra == 0
        assert found.n_refused_late <= 0.05 * N
        assert found.end_s <= 1.5 * known.end_s


@pytest.mark.slow
def test_storm_with_retry_after_is_not_treated_as_a_rate_limit():
    storm = Bears(refuses=True)
    provider = Provider((storm, Bears(3.0)), typical_s=0.01, sigma=0.1, retry_after_s=1.0)
    found = play(provider, ceiling=4, n_requests=400)
    # Requests in flight do not show how many requests the provider accepts.
    assert found.n_infra == 0
    assert found.end_s <= 20.0


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.25])
def test_refusals_that_are_unrelated_to_load_lower_no_limit_for_long(share):
    found = play(Provider(errors=share, typical_s=0.2, refusal="overload"), n_requests=2000)
    # At 20 at once 2,000 answers take 20 s; a lane that stayed lowered took hours.
    assert found.end_s <= 600.0


@pytest.mark.slow
def test_pool_with_correct_limits_is_used_fully():
    found = play(Provider((Bears(seats=DECLARED),), typical_s=0.2))
    assert (found.attempts, found.peak) == (N, DECLARED)


def test_provider_that_refuses_everything_gets_its_budget_and_few_probes():
    provider = Provider((Bears(refuses=True),), refusal="overload")
    found = play(provider)
    # It never answered, so the lane is removed after a minute and waiting requests end.
    n_asked = 2 * DECLARED
    assert found.n_infra == n_asked
    assert found.attempts <= 1.2 * n_asked + 10
    assert 60.0 <= found.end_s <= 75.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seats", "n", "answers"),
    [(5, 333, (0.2, 0.0)), (40, 1000, (1.0, 0.5)), (40, 1000, (1.0, 0.0))],
)
def test_three_keys_cost_one_trial_each(seats, n, answers):
    """In half a minute, the pause of a second that the provider asks for must not come twice.

    The keys share the seats, or each has its own.
    """
    found, known = [], []
    for seed in range(1, 6):
        for shares in (3, 1):
            borne = Bears(seats=shares * seats)
            provider = Provider((borne,), typical_s=answers[0], sigma=answers[1], retry_after_s=1.0)
            options = {"n_lanes": shares, "n_requests": shares * n, "seed": seed}
            most = 4 * shares * seats
            found.append(play(provider, ceiling=most, rate_mode="adaptive", **options).end_s)
            known.append(play(provider, ceiling=shares * seats, **options).end_s)
    assert statistics.median(map(operator.truediv, known, found)) >= 0.9


@pytest.mark.slow
def test_rate_is_found_if_answers_take_longer_than_the_requested_pause():
    """Five requests are in flight at the first refusal, which does not mean five seats."""
    provider = Provider((Bears(rate=20),), typical_s=5.0, retry_after_s=1.0)
    found = play(provider, ceiling=1000, rate_mode="adaptive", n_requests=2400)
    # It takes 120 s if the rate is known.
    assert found.end_s <= 240.0
