"""What collecting the five phases costs, next to as many empty tests."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

from bench_suites.overhead.command import pytest_start, run_timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_suites.overhead.command import Cost
    from bench_suites.overhead.environment import Environment

N_CASES = 12_200
"""The full plan: the eight open models, 20 repetitions."""

MOST_CPU_RATIO = 2.0
"""A case may take so many times the CPU of an empty test."""

MOST_KIB = 2.0
"""A case may take so much more memory than an empty test."""

_PHASES = tuple(f"bench_suites/phase5{number}" for number in range(1, 6))
_FULL = ("--ultrapar-repeats=20",)
_ONE = ("--ultrapar-repeats=1", "--task-type=simple_task", "--ultrapar-model=DeepSeek-R1*")
_EMPTY = "bench_suites/overhead/test_empty_cells.py"
_ONE_EMPTY = ("bench_suites/overhead/test_empty.py", "--overhead-cases=1")
_MIB = 1024.0


class Collection(msgspec.Struct, frozen=True):
    """`pytest --collect-only`, less the same command with one case or test.

    Attributes:
        n: Cases, and empty tests.
        cpu_s: CPU seconds for the cases, median of the runs.
        empty_cpu_s: The same for the empty tests.
        mib: Peak of resident memory for the cases, in MiB.
        empty_mib: The same for the empty tests.
    """

    n: int
    cpu_s: float
    empty_cpu_s: float
    mib: float
    empty_mib: float

    @property
    def cpu_ratio(self) -> float:
        """CPU of a case in terms of that of an empty test."""
        return self.cpu_s / self.empty_cpu_s

    @property
    def more_kib(self) -> float:
        """KiB of a case beyond those of an empty test."""
        return (self.mib - self.empty_mib) * _MIB / self.n


def measure_collection(
    n_runs: int, *, environment: Environment, note: Callable[[str], object]
) -> Collection:
    """Collect everything and one, cases and empty tests, in turn.

    Args:
        n_runs: Of each of the four, >= 1.
        environment: See `environment.measured_environment`.
        note: Called with a line before each round.

    Raises:
        CommandError: A command ended badly.
    """

    def collect(*more: str) -> Cost:
        return run_timed([*pytest_start(), "--collect-only", "-qq", *more], environment)

    def phases(*more: str) -> Cost:
        return collect(*_PHASES, "--ultrapar-pool=pool.toml", *more)

    runs: list[tuple[Cost, Cost, Cost, Cost]] = []
    for number in range(n_runs):
        note(f"collection, round {number + 1} of {n_runs}")
        runs.append(
            (
                phases(*_FULL),
                phases(*_ONE),
                collect(_EMPTY),
                collect(*_ONE_EMPTY),
            )
        )
    return Collection(
        n=N_CASES,
        cpu_s=statistics.median(full.cpu_s - one.cpu_s for full, one, _, _ in runs),
        empty_cpu_s=statistics.median(full.cpu_s - one.cpu_s for _, _, full, one in runs),
        mib=statistics.median(full.peak_mib - one.peak_mib for full, one, _, _ in runs),
        empty_mib=statistics.median(full.peak_mib - one.peak_mib for _, _, full, one in runs),
    )
