"""A server that stops for good ends a run with many cases, too, by its episodes' deadline."""

from __future__ import annotations

import pytest

from tests.faults.played import SEATS, play
from tests.faults.test_stopped_server import Halt, server

__all__ = ["server"]

pytestmark = pytest.mark.slow


def test_server_that_stops_for_good_ends_the_run_and_costs_no_answer_that_had_come(project):
    prompts = [f"work {n}" for n in range(100)]
    with Halt(project.server, at=20, for_s=60):
        played = play(project, prompts, timeout_s=0.5, episode_timeout_s=4, judged=False)
    outcomes = played.outcomes()
    assert outcomes["solved", None] >= 20 - 2 * SEATS
    assert {outcome for outcome, _ in outcomes} == {"solved", "infra"}
