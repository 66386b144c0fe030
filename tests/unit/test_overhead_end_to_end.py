"""A small measurement from end to end, with real processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench_suites.overhead.comparison import RAW, compare
from bench_suites.overhead.environment import measured_environment
from bench_suites.overhead.workload import EPISODES

pytestmark = pytest.mark.slow


def test_comparison_of_the_tool_and_the_raw_client():
    workload = replace(EPISODES, n_cases=4, n_turns=6)
    with measured_environment() as environment:
        runs = compare(
            workload,
            n_processes=[0],
            n_rounds=1,
            pinned=False,
            environment=environment,
            note=lambda _: None,
        )
    assert [run.client for run in runs] == ["-n 0", RAW]
    tool, raw = runs
    assert raw.ratio == 1.0
    assert tool.ratio == tool.wall_s / raw.wall_s
    for run in runs:
        assert run.n_429 == 0
        assert run.peak_in_flight == 4
        # The bound is drawn, not measured: both clients waited for at least what was drawn.
        assert 0.0 < run.efficiency <= 1.0
        assert run.phase_s < run.wall_s
