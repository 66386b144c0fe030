"""Plans against the runs that follow, with real processes and sockets.

Two situations stand for the eight of `python -m bench_suites.adaptive forecast`, which takes two
minutes.
"""

from __future__ import annotations

import pytest

from bench_suites.adaptive.forecast import (
    MOST_MEDIAN,
    MOST_WORST,
    SITUATIONS,
    Forecasted,
    compare,
    errors,
    forecast_lines,
)
from bench_suites.overhead.command import Checkout, measured_environment
from bench_suites.overhead.command_line import Options


def test_errors_are_shares_of_what_was_measured():
    found = [Forecasted("a", "ultra", "pool", 1, p, m) for p, m in ((10, 8), (16, 16), (3, 2))]
    assert errors(found) == (0.25, 0.5)
    lines = list(forecast_lines(found))
    assert [line.split(" | ")[1:] for line in lines[-2:]] == [
        ["0.25  ", "<= 0.1", "NOT met |"],
        ["0.5   ", "<= 0.2", "NOT met |"],
    ]


def test_situations_are_eight_of_all_modes_on_pools_and_earlier_runs():
    assert len({one.name for one in SITUATIONS}) == 8
    assert {one.mode for one in SITUATIONS} == {"serial", "rotate", "phase", "ultra"}
    assert {one.earlier_mode is None for one in SITUATIONS} == {True, False}


@pytest.mark.slow
def test_predicted_times_are_those_of_the_runs_that_follow():
    # What bounds these runs is latency and limits: a busy machine lengthens them by a few percent.
    few = [one for one in SITUATIONS if one.name in {"qps, three keys", "all lanes in turn"}]
    with measured_environment() as variables:
        found = [compare(one, Options(Checkout(variables))) for one in few]
    assert len(found) == 2
    median, worst = errors(found)
    assert median <= MOST_MEDIAN, found
    assert worst <= MOST_WORST, found
