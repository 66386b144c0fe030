"""The cost of a case in small and large runs: CPU, and memory of each process.

A run of `FEW` cases contains all costs that do not depend on the number of cases, such as modules
and connections. The cost of a case is therefore the increase over such a run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.overhead.command import Cost
from benchmarks.overhead.comparison import pytest_client, run_client
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows, note
from benchmarks.overhead.workload import MEMORY

SIZES = (3_000, 20_000, 100_000)
FEW = 300
"""Cases of the small runs: one for each seat, so that all connections are open."""

_MIB = 1 << 20
_ALL = "CPU per case, most / fewest"


def growth_round(sizes: Sequence[int], numbers: Sequence[int], options: Options) -> Rows:
    """For each `-n`, run a few cases, then each of `sizes`, and the same numbers of empty tests.

    Answers take 20 ms. `cpu_ms` is the CPU of a case in all processes of the client, including the
    compaction. The other figures are a process's peak memory, and how much more it grows than with
    the same number of empty tests, in total and per case. A comparison of checkouts omits the empty
    tests.
    """
    sizes = (options.cases,) if options.cases else sizes
    n_few = min(FEW, sizes[0] // 2)
    rows: Rows = {}
    for n_processes in options.n or numbers:
        few, empty_few = _both(n_few, n_processes, options)
        costs_ms = []
        for n in sizes:
            many, empty_many = _both(n, n_processes, options)
            label = f"n = {n:,}, -n {n_processes}"
            costs_ms.append(1000 * (many.cpu_s - few.cpu_s) / (n - n_few))
            rows[label] = {"cpu_ms": costs_ms[-1], "wall_s": many.wall_s}
            for name, mib in many.peaks_mib.items():
                own = {"few_mib": few.peaks_mib.get(name, 0.0), "many_mib": mib}
                if empty_few is not None and empty_many is not None:
                    empty = [each.peaks_mib.get(name, 0.0) for each in (empty_few, empty_many)]
                    own["empty_few_mib"], own["empty_many_mib"] = empty
                    own["more_mib"] = (mib - own["few_mib"]) - (empty[1] - empty[0])
                    own["more_bytes"] = own["more_mib"] * _MIB / (n - n_few)
                rows[f"{label}, {name}"] = own
            if empty_few is not None and empty_many is not None:
                more_s = empty_many.cpu_s - empty_few.cpu_s
                rows[label]["empty_cpu_ms"] = 1000 * more_s / (n - n_few)
        if len(sizes) > 1:
            rows[f"-n {n_processes}"] = {_ALL: max(costs_ms) / costs_ms[0]}
    return rows


def _both(n: int, n_processes: int, options: Options) -> tuple[Cost, Cost | None]:
    """Run cases, and the same number of empty tests, and watch the memory of each process.

    The kernel's own figure covers only the largest process. With 100,000 cases, that is the
    compaction, not pytest.
    """
    note(f"-n {n_processes}: {n} cases")
    workload = replace(MEMORY, n_cases=n)
    client = pytest_client(workload, n_processes, options.checkout)
    with tempfile.TemporaryDirectory(prefix="overhead-") as kept:
        cost, _ = run_client(workload, client, options, Path(kept), watched=True)
    if options.before:
        return cost, None
    note(f"-n {n_processes}: {n} empty tests")
    test = f"{options.checkout.suite}/test_empty.py"
    argv = options.checkout.pytest(f"-n{n_processes}", test, f"--overhead-cases={n}")
    return cost, options.checkout.run(argv, watched=True)


_TITLE = (
    "one-turn cases on 300 seats at 20 ms, and the same number of empty tests; CPU per case beyond "
    f"a run of {FEW}; peaks of resident memory"
)
GROWTH = Measurement(
    partial(growth_round, SIZES, (0,)),
    _TITLE,
    (
        Goal("-n 0", _ALL, at_most=1.10),
        *(Goal(f"n = {n:,}, -n 0, pytest", "more_bytes", at_most=2000.0) for n in SIZES),
    ),
    n_rounds=1,
)
MEMORY_OF_PROCESSES = Measurement(
    partial(growth_round, (MEMORY.n_cases,), MEMORY.n_processes),
    _TITLE,
    tuple(
        Goal(f"n = {MEMORY.n_cases:,}, -n {process}", "more_mib", at_most=15.0)
        for process in ("0, pytest", "2, pytest", "2, gw0", "2, gw1", "2, broker")
    ),
    n_rounds=1,
)
