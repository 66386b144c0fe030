"""The workloads: number and kind of cases, pool, and goals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead.command import ROOT
from benchmarks.overhead.conversation import N_TURNS
from benchmarks.overhead.measurement import Goal
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.model import Pool


@dataclass(frozen=True, slots=True)
class Workload:
    """One comparison of the tool with the raw client.

    Attributes:
        test: The test's path in this folder.
        pool_file: The name of the pool file in `pools/`.
        n_turns: Requests per case, sent one after the other.
        n_processes: The values of `-n` for which there are goals.
    """

    name: str
    test: str
    pool_file: str
    n_cases: int
    n_turns: int
    n_processes: tuple[int, ...]
    goals: tuple[Goal, ...] = ()

    @property
    def pool_path(self) -> Path:
        """The path of the pool file."""
        return ROOT / "pools" / self.pool_file

    def pool(self) -> Pool:
        """The pool in the file, without the environment, which must not change a measurement."""
        return load_pool(self.pool_path, environ={}, overrides=Overrides())


SMALL = Workload(
    name="small",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-small.toml",
    n_cases=300,
    n_turns=1,
    n_processes=(0, 15),
    goals=(
        Goal("-n 0", "efficiency", at_least=0.95),
        Goal("-n 0 / raw", "wall_s", at_most=1.25),
        Goal("-n 0", "rest_s", at_most=0.15),
        Goal("-n 15", "efficiency", at_least=0.90),
    ),
)
WIDE = Workload(
    name="wide",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-wide.toml",
    n_cases=3000,
    n_turns=1,
    n_processes=(0, 2, 4),
    goals=(
        Goal("-n 0", "peak_in_flight", at_least=300),
        Goal("-n 0", "efficiency", at_least=0.80, pinned=True),
        Goal("-n 0 / raw", "wall_s", at_most=1.8, pinned=True),
        Goal("-n 0", "cpu_ms_per_case", at_most=1.35, pinned=True),
        *(
            goal
            for n in (2, 4)
            for goal in (
                Goal(f"-n {n}", "peak_in_flight", at_least=300),
                Goal(f"-n {n}", "efficiency", at_least=0.80),
                Goal(f"-n {n} / raw", "wall_s", at_most=2.2),
                Goal(f"-n {n} / -n 0", "wall_s", at_most=0.8, pinned=False),
            )
        ),
    ),
)
LONG_TAIL = Workload(
    name="long-tail",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-long-tail.toml",
    n_cases=2000,
    n_turns=1,
    n_processes=(0,),
    goals=(
        Goal("-n 0", "peak_in_flight", at_least=300),
        Goal("-n 0", "of_greedy", at_most=1.10),
    ),
)
EPISODES = Workload(
    name="episodes",
    test="test_episodes.py::test_six_turns",
    pool_file="overhead-episodes.toml",
    n_cases=300,
    n_turns=N_TURNS,
    n_processes=(4,),
    goals=(Goal("-n 4", "efficiency", at_least=0.90),),
)
MANY = Workload(
    name="many",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-many.toml",
    n_cases=50_000,
    n_turns=1,
    n_processes=(0, 2),
    goals=(
        Goal("-n 0", "rest_s", at_most=1.0),
        Goal("-n 2 / -n 0", "wall_s", at_most=0.6, pinned=False),
    ),
)
MEMORY = Workload(
    name="memory",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-memory.toml",
    n_cases=20_000,
    n_turns=1,
    n_processes=(0, 2),
)

COMPARISONS = {workload.name: workload for workload in (SMALL, WIDE, LONG_TAIL, EPISODES, MANY)}
