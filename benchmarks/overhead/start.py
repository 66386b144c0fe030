"""The cost before the first case: loading the plugin when it has nothing to do, and collection."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.overhead.command import ALONE, Cost
from benchmarks.overhead.comparison import pytest_client, run_client
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows
from benchmarks.overhead.workload import SMALL

_NOTHING_COLLECTED = 5


def start_round(options: Options) -> Rows:
    """Collect an empty folder with the plugin blocked and with the plugin loaded; run one case."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:

        def collect_nothing(*more: str) -> Cost:
            argv = options.checkout.pytest("--collect-only", *more)
            return options.checkout.run(argv, folder=Path(folder), expected=_NOTHING_COLLECTED)

        without, loaded = collect_nothing("-p", "no:ultrapar"), collect_nothing()
    one_case = replace(SMALL, n_cases=1)
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        client = pytest_client(one_case, 0, options.checkout)
        one, _ = run_client(one_case, client, options, Path(folder))
    costs = {"without the plugin": without, "empty folder": loaded, "one case, -n 0": one}
    rows = {name: {"wall_s": cost.wall_s, "cpu_s": cost.cpu_s} for name, cost in costs.items()}
    rows["difference of the first two"] = {
        "more_ms": 1000 * (loaded.wall_s - without.wall_s),
        # CPU time depends less on how busy the machine is.
        "more_cpu_ms": 1000 * (loaded.cpu_s - without.cpu_s),
    }
    return rows


N_CASES = 12_200
"""The cases of the full plan: eight open models, 20 repetitions."""
N_FEW = 300
BEYOND = "each further case of the phases"
_KIB_PER_MIB = 1024

_PHASES = (
    *(f"bench_suites/phase5{number}" for number in range(1, 6)),
    "--ultrapar-pool=pool.toml",
)
_ONE_PHASE_CASE = (
    *_PHASES,
    "--ultrapar-repeats=1",
    "--task-type=simple_task",
    "--ultrapar-model=DeepSeek-R1*",
)


def collection_round(options: Options) -> Rows:
    """Collect cases of one turn and of the phases, and the same numbers of empty tests.

    A comparison of checkouts collects only the phases, without empty tests.
    """
    suite = options.checkout.suite
    cells, empty = f"{suite}/test_empty_cells.py", f"{suite}/test_empty.py"
    one_turn = (*ALONE, f"{suite}/{SMALL.test}", f"--ultrapar-pool={SMALL.pool_path}")
    one = _beside(options, _ONE_PHASE_CASE, (empty, "--overhead-cases=1"))
    every = _beside(options, (*_PHASES, "--ultrapar-repeats=20"), (cells,))
    rows: Rows = {"one of the phases": one, f"{N_CASES:,} of the phases": every}
    if not options.before:
        for n in (options.cases,) if options.cases else (N_FEW, N_CASES):
            size = f"--overhead-cases={n}"
            rows[f"{n:,} of one turn"] = _beside(options, (*one_turn, size), (empty, size))
        more = {name: every[name] - one[name] for name in every}
        rows[BEYOND] = {
            "cpu_ratio": more["cpu_s"] / more["empty_cpu_s"],
            "kib": (more["mib"] - more["empty_mib"]) * _KIB_PER_MIB / N_CASES,
        }
    return rows


def _beside(options: Options, cases: Sequence[str], empty: Sequence[str]) -> dict[str, float]:
    """Run whole commands: cases with the plugin, then empty tests without it."""

    def collect(*what: str) -> Cost:
        argv = options.checkout.pytest("--collect-only", *what)
        return options.checkout.run(argv, watched=True)

    own = collect(*cases)
    row = {"wall_s": own.wall_s, "cpu_s": own.cpu_s, "mib": own.peaks_mib["pytest"]}
    if options.before:
        return row
    other = collect(*ALONE, "-p", "no:ultrapar", *empty)
    return row | {
        "empty_wall_s": other.wall_s,
        "empty_cpu_s": other.cpu_s,
        "empty_mib": other.peaks_mib["pytest"],
        "ratio": own.wall_s / other.wall_s,
        # CPU time depends less on how busy the machine is.
        "cpu_ratio": own.cpu_s / other.cpu_s,
    }


START = Measurement(
    start_round,
    "start: `pytest --collect-only` in an empty folder, and a run of one case",
    (Goal("difference of the first two", "more_ms", at_most=10.0),),
    n_rounds=20,
)
COLLECTION = Measurement(
    collection_round,
    "collection: whole commands, and the same number of empty tests without the plugin",
    (
        Goal(BEYOND, "cpu_ratio", at_most=2.0),
        Goal(BEYOND, "kib", at_most=2.0),
        *(
            Goal(what, figure, at_most=1.5)
            for what in (
                f"{N_FEW} of one turn",
                f"{N_CASES:,} of one turn",
                f"{N_CASES:,} of the phases",
            )
            for figure in ("ratio", "cpu_ratio")
        ),
    ),
)
