"""Whole runs: adaptive mode with unknown limits, compared with fixed mode with correct limits."""

from __future__ import annotations

from benchmarks.overhead.comparison import summary_of_run
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows, note

POOLS = {"qwen": 1_200, "azure": 24_000}
"""Cases for each model of a pool. Fixed mode takes about 90 s, so the search for limits, which
takes some seconds, is a small part of the run, as in real runs."""


def runs_round(options: Options) -> Rows:
    """Run both pools in both modes, in turn.

    `refused` is the share of 429 answers in the server's log. `makespan_s` is the time from the
    first send to the last end. `throughput` is the throughput of adaptive mode, divided by the
    throughput of fixed mode.

    Raises:
        CommandError: A run failed.
    """
    rows: Rows = {}
    for pool, n_cases in POOLS.items():
        for mode in ("fixed", "adaptive"):
            note(f"runs: {pool}, {mode}")
            summary, log = summary_of_run(
                options.checkout,
                f"overhead-adaptive-{pool}.toml",
                "-n0",
                f"{options.checkout.suite}/test_overhead.py",
                f"--overhead-cases={options.cases or n_cases}",
                f"--ultrapar-rate-mode={mode}",
            )
            assert summary.statistics.makespan_s is not None
            rows[f"{pool}, {mode}"] = {
                "requests": len(log.requests),
                "makespan_s": summary.statistics.makespan_s,
                "refused": log.count(429) / len(log.requests),
            }
        fixed, adaptive = (rows[f"{pool}, {mode}"]["makespan_s"] for mode in ("fixed", "adaptive"))
        rows[f"{pool}, adaptive / fixed"] = {"throughput": fixed / adaptive}
    return rows


RUNS = Measurement(
    runs_round,
    "runs: -n 0; refused: share in the server's log",
    tuple(Goal(f"{pool}, adaptive / fixed", "throughput", at_least=0.90) for pool in POOLS),
    warm_up=False,
)
