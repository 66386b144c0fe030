"""Compares the tool with a bare client and with a plugin that has no limits, on the same cases.

All run in turn, each against a fresh server. The tool runs as it does for its users: without the
project's conftest, which loads other suites.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.overhead.command import ALONE
from benchmarks.overhead.comparison import (
    RAW,
    bare_client,
    pytest_client,
    quotients,
    run_clients,
    sized,
    title_of,
)
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows
from benchmarks.overhead.workload import LONG_TAIL, SMALL, WIDE, Workload

COOPERATIVE = "cooperative"
"""The label of pytest-asyncio-cooperative. Runs of the tool have their `-n` as the label."""

_BESIDE_RAW, _BESIDE_COOPERATIVE = f"-n 0 / {RAW}", f"-n 0 / {COOPERATIVE}"
_FIRST = Goal(_BESIDE_COOPERATIVE, "first_s", at_most=1.5, pinned=True)
_GOALS = {
    WIDE: (
        Goal(_BESIDE_RAW, "efficiency", at_least=0.95, pinned=True),
        Goal(_BESIDE_COOPERATIVE, "cpu_ms_per_case", at_most=1.1, pinned=True),
        Goal(_BESIDE_COOPERATIVE, "wall_s", at_most=1.1, pinned=True),
        _FIRST,
    ),
    SMALL: (Goal(_BESIDE_COOPERATIVE, "wall_s", at_most=1.08, pinned=True), _FIRST),
    LONG_TAIL: (Goal(_BESIDE_COOPERATIVE, "wall_s", at_most=0.9, pinned=True), _FIRST),
}


def peers_round(workload: Workload, options: Options) -> Rows:
    """Run every client once; return all figures, and the tool's figures divided by the others'.

    Raises:
        CommandError: A command failed, or not all requests were answered.
        ConfigError: The provider cannot serve the pool.
    """
    workload = sized(workload, options)
    tools = {
        f"-n {n}": pytest_client(workload, n, options.checkout, *ALONE) for n in options.n or (0,)
    }
    others = {
        COOPERATIVE: bare_client(workload, "cooperative_client", str(options.cooperative)),
        RAW: bare_client(workload, "raw_client", sys.executable),
    }
    rows = run_clients(workload, tools | others, options)
    for tool in tools:
        for other in others:
            rows |= quotients(rows, tool, other)
    return rows


PEERS = {
    workload.name: Measurement(partial(peers_round, workload), partial(title_of, workload), goals)
    for workload, goals in _GOALS.items()
}
