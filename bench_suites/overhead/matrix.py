"""How much of an uneven pool a run uses, next to the static even split of the scripts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.overhead.command import pytest_start, run_timed
from bench_suites.overhead.workload import ROOT
from pytest_ultrapar.analysis.run_summary import SUMMARY_FILE, RunSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench_suites.overhead.environment import Environment

POLICIES = ("even", "split")
LEAST_EFFICIENCY = 0.90
N_PROCESSES = (4,)

_N_NUMBERS = 150
"""Cases of each of the pool's four models: at the bound 15 s of six-turn episodes of 0.6 to 1.9 s,
so that the uneven end, a part of one episode, is a few per cent."""


class MatrixRun(msgspec.Struct, frozen=True):
    """One run on the uneven pool.

    Attributes:
        client: `-n 4`, ...
        n: Cases.
        makespan_s: First send to last end.
        bound_s: Lower bound of the makespan by what the requests took.
        efficiency: bound_s / makespan_s.
    """

    policy: str
    client: str
    round_no: int
    n: int
    makespan_s: float
    bound_s: float
    efficiency: float


def measure_matrix(
    n_processes: Sequence[int],
    n_rounds: int,
    *,
    environment: Environment,
    note: Callable[[str], object],
) -> list[MatrixRun]:
    """Run the uneven matrix under each policy in turn.

    Args:
        n_processes: Every `-n` to measure.
        n_rounds: How often, >= 1.
        environment: See `environment.measured_environment`.
        note: Called with a line before each run.

    Raises:
        CommandError: A run ended badly.
    """
    runs = []
    for round_no in range(n_rounds):
        for n in n_processes:
            for policy in POLICIES:
                note(f"matrix, round {round_no + 1} of {n_rounds}: -n {n}, policy {policy}")
                runs.append(_run(policy, n, round_no, environment))
    return runs


def _run(policy: str, n_processes: int, round_no: int, environment: Environment) -> MatrixRun:
    with tempfile.TemporaryDirectory(prefix="matrix-") as temporary:
        directory = Path(temporary, "run")
        run_timed(
            [
                *pytest_start(),
                f"-n{n_processes}",
                "bench_suites/overhead/test_episodes.py",
                f"--overhead-cases={_N_NUMBERS}",
                f"--ultrapar-pool={ROOT / 'pools' / 'overhead-matrix.toml'}",
                f"--ultrapar-policy={policy}",
                f"--ultrapar-out={directory}",
            ],
            environment,
        )
        summary = msgspec.json.decode((directory / SUMMARY_FILE).read_bytes(), type=RunSummary)
    statistics = summary.statistics
    assert statistics.makespan_s is not None
    assert summary.bound_s is not None
    return MatrixRun(
        policy,
        f"-n {n_processes}",
        round_no,
        statistics.n_timed,
        statistics.makespan_s,
        summary.bound_s,
        summary.bound_s / statistics.makespan_s,
    )
