"""Plans against the runs that follow, with real processes and sockets.

One situation stands for the four of `python -m benchmarks.adaptive forecast`, which takes a minute.
"""

from __future__ import annotations

import pytest

from benchmarks.adaptive.forecast import SITUATIONS, compare
from benchmarks.overhead.command import Checkout, measured_environment

pytestmark = pytest.mark.slow


def test_predicted_times_match_the_runs_that_follow():
    # Latency and limits bound these runs, so a busy machine adds only a few per cent.
    situation = next(one for one in SITUATIONS if one.name == "all lanes in turn")
    with measured_environment() as variables:
        found = compare(situation, Checkout(variables))
    assert found["error"] <= 0.2, found
