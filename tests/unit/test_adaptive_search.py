"""A few of the providers that `python -m benchmarks.adaptive search` plays, with one seed.

All of them take a minute; `docs/explanation/adaptive.md` has the table of half of them.
"""

from __future__ import annotations

import pytest

from benchmarks.adaptive.play import LimitPlay
from benchmarks.adaptive.scenarios import SCENARIOS
from benchmarks.adaptive.search import search

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "5 at once",
        "20 per second",
        "100 at once, halved",
        "10 s of nothing but 429",
    ],
)
def test_adaptive_mode_finds_the_limit_of_a_provider(name):
    found = search(BY_NAME[name], seed=0)
    assert found["missed"] == 0, found


@pytest.mark.slow
def test_adaptive_mode_stays_at_a_ceiling_below_the_limit():
    found = search(BY_NAME["ceiling of 40 below 400"], seed=0)
    assert found["at_once"] == 40
    assert found["used"] > 0.97


@pytest.mark.slow
def test_server_that_queues_is_not_flooded():
    scenario = BY_NAME["queues beyond 64"]
    play = LimitPlay(scenario.provider, ceiling=scenario.ceiling, seed=1)
    outcome = play.run()
    seats = [change.workers for change in play.broker.take_changes()]
    assert outcome.utilisation > 0.9
    assert 40 <= sorted(seats[-20:])[10] <= 100
