"""A small measurement from end to end, with real processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.overhead.command import Checkout, measured_environment
from benchmarks.overhead.comparison import RAW, workload_round
from benchmarks.overhead.measurement import Options
from benchmarks.overhead.workload import EPISODES

pytestmark = pytest.mark.slow


def test_tool_is_compared_with_the_raw_client():
    workload = replace(EPISODES, n_cases=4, n_turns=6)
    with measured_environment() as variables:
        rows = workload_round(workload, Options(Checkout(variables), n=(0,)))
    assert list(rows) == ["-n 0", RAW, "-n 0 / raw"]
    tool, raw, quotient = rows.values()
    assert quotient["wall_s"] == tool["wall_s"] / raw["wall_s"]
    assert 0.0 < tool["rest_s"] < tool["end_s"]
    for row in (tool, raw):
        assert row["n_429"] == 0
        assert row["peak_in_flight"] == 4
        # The bound is drawn, not measured. Both clients wait for at least the drawn times.
        assert 0.0 < row["efficiency"] <= 1.0
        assert row["phase_s"] < row["wall_s"]
