"""Plans compared with runs: the error of `--ultrapar-plan`."""

from __future__ import annotations

import re
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead.command import Checkout, CommandError
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows, note
from pytest_ultrapar.testing import read_server_log

ONE_TURN = "benchmarks/overhead/test_overhead.py::test_one_turn"
SIX_TURNS = "benchmarks/overhead/test_episodes.py::test_six_turns"


@dataclass(frozen=True, slots=True)
class Situation:
    """A run of a few seconds, whose duration depends on the pool and not on the client or server.

    Attributes:
        pool: The text of the pool file.
        cases: Arguments that select the cases.
        earlier_mode: Mode of the earlier run on which the plan is based; None means that the plan
            uses the pool's latencies.
        n_processes: pytest-xdist's `-n`.
    """

    name: str
    pool: str
    cases: tuple[str, ...]
    mode: str = "ultra"
    earlier_mode: str | None = None
    n_processes: int = 0


def _pool(provider: str, *models: str) -> str:
    named = "".join(
        f'\n[[provider.model]]\nname = "{model.partition(" ")[0]}"\n{model.partition(" ")[2]}\n'
        for model in models
    )
    return f'schema = 1\n[[provider]]\nname = "sim"\napi = "simulated"\n{provider}\n{named}'


_ONE_KEY = 'keys = [{ name = "key0" }]\n'
_KEYS = 'keys = [{ name = "key0" }, { name = "key1" }, { name = "key2" }]\n'
_FIXED = 'latency = { kind = "fixed", median_s = 0.2 }\n'
_SPREAD = 'latency = { kind = "log-normal", median_s = 0.15, sigma = 0.5 }\n'
_QWENS = tuple(f"qwen2.5-{size}-instruct" for size in ("72b", "32b", "14b", "7b", "3b"))

SITUATIONS = (
    Situation(
        "qps, three keys",
        _pool(_KEYS + _FIXED + "per_key = { workers = 8, qps = 15 }", "echo"),
        (SIX_TURNS, "--overhead-cases=30"),
        n_processes=2,
    ),
    Situation(
        "uneven models",
        _pool(
            _KEYS + _SPREAD + "per_key = { workers = 5, qps = 18 }",
            'slow latency = { kind = "log-normal", median_s = 0.6, sigma = 0.4 }\n'
            'persona = "repairing"\nkeys = ["key0"]',
            'large persona = "sloppy"\ninstances = ["large", "large-2", "large-3"]\n'
            "per_instance = { workers = 2 }",
            'small persona = "obedient"',
        ),
        ("bench_suites/phase53", "--task-type=simple_task", "--ultrapar-repeats=1"),
        earlier_mode="ultra",
        n_processes=2,
    ),
    Situation(
        "original scripts' processes",
        _pool(_KEYS + _SPREAD + "per_key = { workers = 2, qps = 10 }", *_QWENS),
        (
            "bench_suites/phase52",
            "--task-type=simple_task",
            "--difficulty=very_easy,medium",
            "--ultrapar-repeats=2",
            "--ultrapar-phase-scale=0.05",
        ),
        mode="phase",
        earlier_mode="phase",
    ),
    Situation(
        "all lanes in turn",
        _pool(
            _ONE_KEY + _SPREAD + "qps = 4",
            'echo instances = ["a", "b", "c", "d"]\nper_instance = { workers = 1 }',
        ),
        (ONE_TURN, "--overhead-cases=20"),
        mode="rotate",
    ),
)


def forecast_round(options: Options) -> Rows:
    """Plan and run every situation, and measure the errors of the plans.

    Raises:
        CommandError: A command failed, or its plan has no time for the mode.
    """
    rows = {one.name: compare(one, options.checkout) for one in SITUATIONS}
    errors = [row["error"] for row in rows.values()]
    rows["error"] = {"median": statistics.median(errors), "worst": max(errors)}
    return rows


def compare(one: Situation, checkout: Checkout) -> dict[str, float]:
    """Plan a situation, based on an earlier run if it has one, and run it.

    `predicted_s` is the time that the plan shows for the run's mode. `measured_s` is the time from
    the first arrival to the last reply in the server's log. `ratio` is predicted / measured, and
    `error` is its distance from 1.

    Raises:
        CommandError: A command failed, or its plan has no time for the mode.
    """
    note(f"forecast: {one.name}")
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        folder = Path(temporary)
        pool = folder / "pool.toml"
        pool.write_text(one.pool, encoding="utf-8")

        def run(mode: str, *more: str) -> str:
            where = f"--ultrapar-pool={pool}", f"--ultrapar-mode={mode}"
            argv = checkout.pytest(f"-n{one.n_processes}", *one.cases, *where, *more)
            return checkout.run(argv).said

        basis = "none"
        if one.earlier_mode is not None:
            basis = str(folder / "earlier")
            run(one.earlier_mode, f"--ultrapar-out={basis}")
        plan = run(one.mode, "--ultrapar-plan", f"--ultrapar-plan-from={basis}")
        row = re.search(rf"^{one.mode} <- +\S+ +([\d.]+) s ", plan, re.MULTILINE)
        if row is None:
            msg = f"{one.name}: the plan has no time for mode {one.mode}\n{plan}"
            raise CommandError(msg)
        run(one.mode, f"--ultrapar-out={folder / 'run'}")
        log = read_server_log(folder / "run" / "simulator.jsonl")
    ratio = float(row[1]) / log.phase_s
    return {
        "requests": len(log.requests),
        "predicted_s": float(row[1]),
        "measured_s": log.phase_s,
        "ratio": ratio,
        "error": abs(ratio - 1),
    }


FORECAST = Measurement(
    forecast_round,
    f"forecast: {len(SITUATIONS)} plans and the runs that followed",
    (Goal("error", "median", at_most=0.10), Goal("error", "worst", at_most=0.20)),
    n_rounds=1,
    warm_up=False,
)
