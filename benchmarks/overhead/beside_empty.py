"""The tool's part of a run's time and CPU: many short cases, compared with empty tests."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.overhead.command import ALONE, Cost
from benchmarks.overhead.comparison import pytest_client, run_client, sized
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows, note
from benchmarks.overhead.workload import MANY

SHORT = replace(MANY, name="empty", n_cases=20_000)


def empty_round(options: Options) -> Rows:
    """Run all cases with each `-n`, and the same number of empty tests without the plugin.

    Time and CPU include the whole command and all its processes, but not the server, which uses the
    same cores. A comparison of checkouts omits the empty tests.
    """
    workload = sized(SHORT, options)
    checkout = options.checkout
    plain = f"{checkout.suite}/test_plain.py", f"--overhead-cases={workload.n_cases}"
    rows: Rows = {}
    for n in options.n or workload.n_processes:
        label, empty = f"-n {n}", f"empty, -n {n}"
        note(f"{workload.name}: {label}")
        client = pytest_client(workload, n, checkout, *ALONE)
        with tempfile.TemporaryDirectory(prefix="overhead-") as kept:
            cost, _ = run_client(workload, client, options, Path(kept))
        own = rows[label] = _figures(cost, workload.n_cases)
        if not options.before:
            argv = checkout.pytest(*ALONE, "-p", "no:ultrapar", f"-n{n}", *plain)
            rows[empty] = _figures(checkout.run(argv), workload.n_cases)
        for other in (empty, "-n 0"):
            if other in rows and other != label:
                others = rows[other]
                rows[f"{label} / {other}"] = {name: own[name] / others[name] for name in own}
    return rows


def _figures(cost: Cost, n_cases: int) -> dict[str, float]:
    return {"wall_s": cost.wall_s, "cpu_ms_per_case": 1000 * cost.cpu_s / n_cases}


BESIDE_EMPTY = Measurement(
    empty_round,
    f"empty: {SHORT.n_cases:,} cases of 50 ms on 400 seats, and the same number of empty tests",
    (
        Goal("-n 2 / empty, -n 2", "cpu_ms_per_case", at_most=1.25),
        Goal("-n 2 / -n 0", "wall_s", at_most=1.0, pinned=False),
    ),
    n_rounds=3,
)
