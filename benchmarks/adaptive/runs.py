"""Adaptive mode that knows no limit beside fixed mode that knows the right ones: whole runs."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.overhead.command import ROOT
from benchmarks.overhead.command_line import note
from benchmarks.overhead.tables import table
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.testing import read_server_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.overhead.command_line import Found, Options

LEAST_SHARE = 0.90
N_ROUNDS = 5
POOLS = {"qwen": 1_200, "azure": 24_000}
"""Cases for each model of a pool: fixed mode takes about 90 s, so that a search of some seconds is
a small part, as in real runs."""
MODES = ("fixed", "adaptive")


class ModeRun(msgspec.Struct, frozen=True):
    """One run.

    Attributes:
        n: Requests that arrived at the server.
        refused: How many of them it answered 429.
        makespan_s: First send to last end.
    """

    pool: str
    mode: str
    round_no: int
    n: int
    refused: int
    makespan_s: float


def measure_runs(options: Options) -> Found:
    """Run both pools in both modes, in turn.

    Raises:
        CommandError: A run ended badly.
    """
    runs = []
    n_rounds = options.runs or N_ROUNDS
    for round_no in range(n_rounds):
        for pool in POOLS:
            for mode in MODES:
                note(f"runs, round {round_no + 1} of {n_rounds}: {pool}, {mode}")
                runs.append(_run(pool, mode, round_no, options))
    return run_lines(runs), runs


def share(runs: Sequence[ModeRun], pool: str) -> float:
    """Throughput of adaptive mode / of fixed mode, by the medians of all rounds."""
    times = {
        mode: statistics.median(
            run.makespan_s for run in runs if (run.pool, run.mode) == (pool, mode)
        )
        for mode in MODES
    }
    return times["fixed"] / times["adaptive"]


def run_lines(runs: Sequence[ModeRun]) -> Iterator[str]:
    """A table of the runs, and each pool's share."""
    yield "runs: -n 0, simulated; refused as the server's log has it"
    rows = [
        [
            run.pool,
            run.mode,
            str(run.round_no + 1),
            f"{run.n:,}",
            f"{run.makespan_s:.1f} s",
            f"{run.refused / run.n * 100:.2f} %",
        ]
        for run in runs
    ]
    header = ["pool", "mode", "round", "requests", "makespan", "429"]
    yield from table(header, rows)
    for pool in POOLS:
        found = share(runs, pool)
        verdict = "met" if found >= LEAST_SHARE else "MISSED"
        yield f"{pool}: adaptive / fixed {found:.3f}, aim >= {LEAST_SHARE:.2f}: {verdict}"


def _run(pool: str, mode: str, round_no: int, options: Options) -> ModeRun:
    with tempfile.TemporaryDirectory(prefix="adaptive-") as temporary:
        directory = Path(temporary, "run")
        argv = options.checkout.pytest(
            "-n0",
            "benchmarks/overhead/test_overhead.py",
            f"--overhead-cases={options.cases or POOLS[pool]}",
            f"--ultrapar-pool={ROOT / 'pools' / f'overhead-adaptive-{pool}.toml'}",
            f"--ultrapar-rate-mode={mode}",
            f"--ultrapar-out={directory}",
        )
        options.checkout.run(argv)
        summary = read_summary(directory)
        log = read_server_log(directory / "simulator.jsonl")
    assert summary is not None
    assert summary.statistics.makespan_s is not None
    return ModeRun(
        pool=pool,
        mode=mode,
        round_no=round_no,
        n=len(log.requests),
        refused=log.count(429),
        makespan_s=summary.statistics.makespan_s,
    )
