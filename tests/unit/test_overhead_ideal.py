"""The ideal time of a workload: a bound that no schedule beats."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_suites.overhead.conversation import N_TURNS
from bench_suites.overhead.ideal import greedy_s, ideal, ideal_of, play
from bench_suites.overhead.workload import COMPARISONS, EPISODES, MEMORY, SMALL, WIDE

durations = st.lists(st.floats(0.001, 10.0), min_size=1, max_size=40)


@pytest.mark.parametrize(("workload", "n_seats"), [(SMALL, 15), (WIDE, 300)])
def test_ideal_of_fixed_latency_is_two_seconds(workload, n_seats):
    best = ideal_of(workload)
    assert best.n_seats == n_seats
    assert best.bound_s == pytest.approx(2.0)
    assert best.greedy_s == pytest.approx(2.0)
    assert best.mean_s == pytest.approx(2.0)


def test_ideal_of_episodes_is_its_service_over_its_seats():
    few = replace(EPISODES, n_cases=60)
    episodes = play(few.pool(), n_cases=60, n_turns=N_TURNS)
    assert [len(episode) for episode in episodes] == [N_TURNS] * 60
    # 0.2 s on average, as the pool file says; 360 draws with a spread of 0.06 s.
    assert sum(map(sum, episodes)) / 360 == pytest.approx(0.2, rel=0.1)
    best = ideal_of(few)
    assert best.n_seats == 60
    assert best.mean_s == pytest.approx(60 * N_TURNS * 0.2 / 60, rel=1e-5)
    assert best.bound_s == max(best.total_s / 60, *map(sum, episodes))


def test_play_gives_the_same_latencies_for_more_cases():
    pool = EPISODES.pool()
    assert (
        play(pool, n_cases=3, n_turns=2)
        == [row[:2] for row in play(pool, n_cases=5, n_turns=4)][:3]
    )


def test_ideal_is_bounded_by_the_longest_episode():
    best = ideal([[0.1], [2.0, 3.0], [0.1]], n_seats=3, mean_latency_s=1.0)
    assert best.bound_s == best.longest_s == 5.0
    assert best.greedy_s == 5.0
    assert best.mean_s == 4 * 1.0 / 3


@given(durations, st.integers(1, 12))
def test_greedy_is_between_the_bound_and_grahams_factor(durations_s, n_seats):
    best = ideal([[duration_s] for duration_s in durations_s], n_seats, mean_latency_s=1.0)
    slack = 1e-9
    assert best.bound_s <= best.greedy_s + slack
    assert best.greedy_s <= (2 - 1 / n_seats) * best.bound_s + slack


@given(durations)
def test_greedy_on_one_seat_is_the_sum(durations_s):
    assert greedy_s(durations_s, 1) == pytest.approx(sum(durations_s))


@pytest.mark.parametrize("workload", [*COMPARISONS.values(), MEMORY], ids=lambda w: w.name)
def test_pool_of_every_workload_bounds_its_seats(workload):
    pool = workload.pool()
    assert pool.seats(pool.lanes)
    assert len(pool.models) == 1
