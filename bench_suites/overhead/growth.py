"""Whether a case costs the same among 3,000 and among 100,000: CPU, memory, collection."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.overhead.command import Cost, pytest_command, pytest_start, run_timed
from bench_suites.overhead.comparison import serving
from bench_suites.overhead.memory import FEW, peak_kib
from bench_suites.overhead.workload import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench_suites.overhead.environment import Environment

SIZES = (3_000, 20_000, 100_000)
MOST_GROWTH = 1.10
"""CPU per case among the most cases / among the fewest."""
MOST_BYTES = 2000.0
"""Memory of a case beyond that of an empty test."""

_EMPTY = "bench_suites/overhead/test_empty.py"
_SAMPLE_S = 0.05
_KIB = 1024


class GrowthRow(msgspec.Struct, frozen=True):
    """One size; a case's figures are those beyond a run of `memory.FEW` cases.

    Attributes:
        cpu_ms: CPU of a case, all processes of the client, the compaction included.
        empty_cpu_ms: CPU of an empty test.
        more_bytes: Memory of a case in pytest's process at its peak, beyond that of an empty test.
        collect_s: CPU of `--collect-only` with as many cases, in all.
        empty_collect_s: The same with as many empty tests.
        wall_s: The whole command.
    """

    n: int
    cpu_ms: float
    empty_cpu_ms: float
    more_bytes: float
    collect_s: float
    empty_collect_s: float
    wall_s: float


def measure_sizes(
    sizes: Sequence[int], *, environment: Environment, note: Callable[[str], object]
) -> list[GrowthRow]:
    """Run each size without xdist on answers of 20 ms, and as many empty tests; each once.

    Args:
        sizes: Numbers of cases, each above `memory.FEW`.
        environment: See `environment.measured_environment`.
        note: Called with a line before each command.

    Raises:
        CommandError: A command ended badly.
    """

    def cases(n: int) -> Cost:
        note(f"growth: {n} cases")
        workload = replace(MEMORY, n_cases=n)
        with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
            directory = Path(temporary)
            with serving(workload.pool(), directory / "server.jsonl", pinned=False) as url:
                run = directory / "run"
                return _own_cost(
                    pytest_command(workload, url=url, n_processes=0, directory=run), environment
                )

    def empty(n: int) -> Cost:
        note(f"growth: {n} empty tests")
        return _own_cost(_empty_command(n), environment)

    def collected(n: int, *more: str) -> float:
        note(f"growth: {n} items collected")
        argv = [*pytest_start(), "--collect-only", f"--overhead-cases={n}", *more]
        return run_timed(argv, environment).cpu_s

    # Once to warm up: whoever comes first compiles what all import, which takes CPU and memory.
    cases(FEW), empty(FEW)
    few, empty_few = cases(FEW), empty(FEW)
    suite = f"bench_suites/overhead/{MEMORY.test}"
    pool = f"--ultrapar-pool={MEMORY.pool_path}"
    rows: list[GrowthRow] = []
    for n in sizes:
        many, empty_many = cases(n), empty(n)
        more_mib = (many.peak_mib - few.peak_mib) - (empty_many.peak_mib - empty_few.peak_mib)
        rows.append(
            GrowthRow(
                n=n,
                cpu_ms=1000 * (many.cpu_s - few.cpu_s) / (n - FEW),
                empty_cpu_ms=1000 * (empty_many.cpu_s - empty_few.cpu_s) / (n - FEW),
                more_bytes=more_mib * _KIB * _KIB / (n - FEW),
                collect_s=collected(n, suite, pool),
                empty_collect_s=collected(n, _EMPTY),
                wall_s=many.wall_s,
            )
        )
    return rows


def _empty_command(n: int) -> list[str]:
    return [*pytest_start(), "-n0", _EMPTY, f"--overhead-cases={n}"]


def _own_cost(argv: Sequence[str], environment: Environment) -> Cost:
    """As `run_timed`, with the memory of the first process alone.

    The kernel's own figure is that of the largest process, and the compaction of 100,000 cases is
    larger than pytest.
    """
    peaks = [0]
    watching: list[threading.Thread] = []

    def watch(pid: int) -> None:
        def look() -> None:
            while kib := peak_kib(pid):
                peaks.append(kib)
                time.sleep(_SAMPLE_S)

        watching.append(threading.Thread(target=look))
        watching[0].start()

    cost = run_timed(argv, environment, started=watch)
    watching[0].join()
    return Cost(cost.wall_s, cost.cpu_s, max(peaks) / _KIB)
