"""The ideal time of a workload: a bound that no schedule beats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.overhead.conversation import N_TURNS
from benchmarks.overhead.ideal import ideal_of, play
from benchmarks.overhead.workload import EPISODES, SMALL, WIDE


@pytest.mark.parametrize(("workload", "n_seats"), [(SMALL, 15), (WIDE, 300)])
def test_ideal_of_fixed_latency_is_two_seconds(workload, n_seats):
    best = ideal_of(workload)
    assert best.n_seats == n_seats
    assert best.bound_s == pytest.approx(2.0)
    assert best.greedy_s == pytest.approx(2.0)
    assert best.mean_s == pytest.approx(2.0)


def test_ideal_of_episodes_is_their_service_time_over_the_seats():
    few = replace(EPISODES, n_cases=60)
    episodes = play(few.pool(), n_cases=60, n_turns=N_TURNS)
    assert [len(episode) for episode in episodes] == [N_TURNS] * 60
    # 0.2 s on average, as the pool file says; 360 draws with a spread of 0.06 s.
    assert sum(map(sum, episodes)) / 360 == pytest.approx(0.2, rel=0.1)
    best = ideal_of(few)
    assert best.n_seats == 60
    assert best.mean_s == pytest.approx(60 * N_TURNS * 0.2 / 60, rel=1e-5)
    assert best.bound_s == max(sum(map(sum, episodes)) / 60, *map(sum, episodes))
