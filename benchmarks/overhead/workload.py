"""What is measured: how many cases of which kind on which pool, and what is to be reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.overhead.command import ROOT
from benchmarks.overhead.conversation import N_TURNS
from pytest_ultrapar.pool.config import Overrides, load_pool

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.pool.model import Pool

Figure = Literal[
    "efficiency", "peak_in_flight", "ratio", "of_n0", "of_plain", "of_greedy", "cpu_ms_per_case"
]
"""A figure of `comparison.workload_round`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound that the median of a figure has to keep.

    Attributes:
        n_processes: For which `-n`.
        pinned: Only with `--pinned`, where a shared core would say nothing of the tool; or, if
            False, only without it, where workers need cores of their own; None for both.
    """

    figure: Figure
    at_least: float | None = None
    at_most: float | None = None
    n_processes: int = 0
    pinned: bool | None = None

    @property
    def goal(self) -> str:
        """The bound as text."""
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"

    def is_met(self, value: float) -> bool:
        """Whether a median keeps the bound."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True, slots=True)
class Workload:
    """One comparison of the tool with the raw client.

    Attributes:
        test: The test's place in this folder.
        pool_file: In `pools/`.
        n_turns: Requests per case, one after the other.
        n_processes: The `-n` that the targets speak of.
        plain_test: A test's place in this folder that a plain xdist session runs as often, to be
            compared with; None for none.
    """

    name: str
    test: str
    pool_file: str
    n_cases: int
    n_turns: int
    n_processes: tuple[int, ...]
    targets: tuple[Target, ...] = ()
    plain_test: str | None = None

    @property
    def pool_path(self) -> Path:
        """The pool file."""
        return ROOT / "pools" / self.pool_file

    def pool(self) -> Pool:
        """The pool, as the file alone says it; the caller's environment changes no measurement."""
        return load_pool(self.pool_path, environ={}, overrides=Overrides())


SMALL = Workload(
    name="small",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-small.toml",
    n_cases=300,
    n_turns=1,
    n_processes=(0, 15),
    targets=(
        Target("efficiency", at_least=0.95, n_processes=0),
        Target("ratio", at_most=1.25, n_processes=0),
        Target("efficiency", at_least=0.90, n_processes=15),
        Target("of_plain", at_most=1.15, n_processes=15),
    ),
    plain_test="test_sleeping.py",
)
WIDE = Workload(
    name="wide",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-wide.toml",
    n_cases=3000,
    n_turns=1,
    n_processes=(0, 2, 4),
    targets=(
        Target("peak_in_flight", at_least=300, n_processes=0),
        Target("efficiency", at_least=0.80, n_processes=0, pinned=True),
        Target("ratio", at_most=1.8, n_processes=0, pinned=True),
        Target("cpu_ms_per_case", at_most=1.35, n_processes=0, pinned=True),
        Target("peak_in_flight", at_least=300, n_processes=2),
        Target("efficiency", at_least=0.80, n_processes=2),
        Target("ratio", at_most=2.2, n_processes=2),
        Target("of_n0", at_most=0.8, n_processes=2, pinned=False),
        Target("peak_in_flight", at_least=300, n_processes=4),
        Target("efficiency", at_least=0.80, n_processes=4),
        Target("ratio", at_most=2.2, n_processes=4),
        Target("of_n0", at_most=0.8, n_processes=4, pinned=False),
    ),
)
LONG_TAIL = Workload(
    name="long-tail",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-long-tail.toml",
    n_cases=2000,
    n_turns=1,
    n_processes=(0,),
    targets=(
        Target("peak_in_flight", at_least=300, n_processes=0),
        Target("of_greedy", at_most=1.10, n_processes=0),
    ),
)
EPISODES = Workload(
    name="episodes",
    test="test_episodes.py::test_six_turns",
    pool_file="overhead-episodes.toml",
    n_cases=300,
    n_turns=N_TURNS,
    n_processes=(4,),
    targets=(Target("efficiency", at_least=0.90, n_processes=4),),
)
MANY = Workload(
    name="many",
    test="test_overhead.py::test_one_turn",
    pool_file="overhead-many.toml",
    n_cases=50_000,
    n_turns=1,
    n_processes=(0, 2),
    targets=(Target("of_n0", at_most=0.6, n_processes=2, pinned=False),),
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
