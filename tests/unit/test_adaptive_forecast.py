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
    compare,
    errors,
)
from bench_suites.overhead.command import Checkout, measured_environment
from bench_suites.overhead.command_line import Options

pytestmark = pytest.mark.slow


def test_predicted_times_are_those_of_the_runs_that_follow():
    # What bounds these runs is latency and limits: a busy machine lengthens them by a few percent.
    few = [one for one in SITUATIONS if one.name in {"qps, three keys", "all lanes in turn"}]
    with measured_environment() as variables:
        found = [compare(one, Options(Checkout(variables))) for one in few]
    assert len(found) == 2
    median, worst = errors(found)
    assert median <= MOST_MEDIAN, found
    assert worst <= MOST_WORST, found
