"""What comes before the first case: the plugin where it has nothing to do, and collecting."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.overhead.command import ALONE
from benchmarks.overhead.comparison import run_workload
from benchmarks.overhead.rounds import Measurement
from benchmarks.overhead.tables import at_most, figures, goals, median
from benchmarks.overhead.workload import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.overhead.command import Cost
    from benchmarks.overhead.command_line import Options
    from benchmarks.overhead.tables import Rows

MOST_MS = 10.0
"""So much longer may `pytest --collect-only` take with the plugin installed."""
_NOTHING_COLLECTED = 5


def start_round(options: Options) -> Rows:
    """Collect an empty folder, and run one case."""
    nothing = collect_nothing(options)
    one, _ = run_workload(replace(SMALL, n_cases=1), 0, options)
    return {
        "empty folder": {"wall_s": nothing.wall_s, "cpu_s": nothing.cpu_s},
        "one case, -n 0": {"wall_s": one.wall_s, "cpu_s": one.cpu_s},
    }


def start_lines(rounds: Sequence[Rows], _: Options) -> Iterator[str]:
    """The whole commands."""
    yield f"start: whole commands, simulated; median [min-max] of {len(rounds)}"
    yield from figures(rounds)


def imports_round(options: Options) -> Rows:
    """Collect an empty folder with the plugin blocked, then with it loaded."""
    without, loaded = collect_nothing(options, "-p", "no:ultrapar"), collect_nothing(options)
    return {
        "empty folder": {
            "without_ms": 1000 * without.wall_s,
            "with_ms": 1000 * loaded.wall_s,
            "more_ms": 1000 * (loaded.wall_s - without.wall_s),
            # A busy machine disturbs it less.
            "more_cpu_ms": 1000 * (loaded.cpu_s - without.cpu_s),
        }
    }


def imports_lines(rounds: Sequence[Rows], _: Options) -> Iterator[str]:
    """The cost of the plugin where it has nothing to do."""
    yield (
        "imports: `pytest --collect-only` in an empty folder, without the plugin and with it in "
        f"turn; median [min-max] of {len(rounds)}"
    )
    yield from figures(rounds)
    more_ms = median(rounds, "empty folder", "more_ms")
    yield from goals(at_most("difference of neighbours, ms", more_ms, MOST_MS))


def collect_nothing(options: Options, *more: str) -> Cost:
    """`pytest --collect-only` in an empty folder."""
    argv = options.checkout.pytest("--collect-only", *more)
    with tempfile.TemporaryDirectory(prefix="overhead-") as empty:
        return options.checkout.run(argv, folder=Path(empty), expected=_NOTHING_COLLECTED)


N_CASES = 12_200
"""The full plan: the eight open models, 20 repetitions."""
MOST_CPU_RATIO = 2.0
"""A case may take so many times the CPU of an empty test."""
MOST_KIB = 2.0
"""A case may take so much more memory than an empty test."""
N_FEW = 300
MOST_RATIO = 1.5
"""Collecting cases may take so many times what as many empty tests take without the plugin."""

_PHASES = (
    *(f"bench_suites/phase5{number}" for number in range(1, 6)),
    "--ultrapar-pool=pool.toml",
)
_FULL = (*_PHASES, "--ultrapar-repeats=20")
_ONE = (
    *_PHASES,
    "--ultrapar-repeats=1",
    "--task-type=simple_task",
    "--ultrapar-model=DeepSeek-R1*",
)
_ONE_TURN = (*ALONE, f"benchmarks/overhead/{SMALL.test}", f"--ultrapar-pool={SMALL.pool_path}")
_FULL_EMPTY = ("benchmarks/overhead/test_empty_cells.py",)
_EMPTY = ("benchmarks/overhead/test_empty.py",)
_ONE_EMPTY = (*_EMPTY, "--overhead-cases=1")
_KIB_PER_MIB = 1024


def collection_round(options: Options) -> Rows:
    """Collect all cases of the five phases and as many empty tests, each less one of them.

    Unless only changes are asked for, also as whole commands, each cases and as many empty tests
    without the plugin in turn: one-turn cases, few and many, and the five phases.
    """

    def beyond(full: Sequence[str], one: Sequence[str]) -> dict[str, float]:
        many, few = (_collect(options, *what, watched=True) for what in (full, one))
        return {
            "cpu_s": many.cpu_s - few.cpu_s,
            "mib": many.peaks_mib["pytest"] - few.peaks_mib["pytest"],
        }

    rows = {"cases": beyond(_FULL, _ONE), "empty tests": beyond(_FULL_EMPTY, _ONE_EMPTY)}
    if not options.before:
        for n in (options.cases,) if options.cases else (N_FEW, N_CASES):
            size = f"--overhead-cases={n}"
            rows[f"{n:,} of one turn"] = _beside((*_ONE_TURN, size), (*_EMPTY, size), options)
        rows[f"{N_CASES:,} of the phases"] = _beside(_FULL, _FULL_EMPTY, options)
    return rows


def _beside(cases: Sequence[str], empty: Sequence[str], options: Options) -> dict[str, float]:
    """Whole commands: cases with the plugin, then empty tests without it."""
    own = _collect(options, *cases)
    without = _collect(options, *ALONE, "-p", "no:ultrapar", *empty)
    return {
        "wall_s": own.wall_s,
        "without_s": without.wall_s,
        "ratio": own.wall_s / without.wall_s,
        # A busy machine disturbs it less.
        "cpu_ratio": own.cpu_s / without.cpu_s,
    }


def _collect(options: Options, *what: str, watched: bool = False) -> Cost:
    return options.checkout.run(options.checkout.pytest("--collect-only", *what), watched=watched)


def collection_lines(rounds: Sequence[Rows], _: Options) -> Iterator[str]:
    """The cost of collecting."""
    beyond, whole = (
        [
            {what: row for what, row in rows.items() if ("ratio" in row) == is_whole}
            for rows in rounds
        ]
        for is_whole in (False, True)
    )
    yield (
        f"collection: n = {N_CASES} cases of the five phases and as many empty tests, beyond those "
        f"of one; median [min-max] of {len(rounds)}"
    )
    yield from figures(beyond)
    yield from ("", "whole commands, and as many empty tests without the plugin")
    yield from figures(whole)
    cpu_s, empty_cpu_s = (median(rounds, what, "cpu_s") for what in ("cases", "empty tests"))
    mib, empty_mib = (median(rounds, what, "mib") for what in ("cases", "empty tests"))
    yield from goals(
        at_most("CPU of a case / that of an empty test", cpu_s / empty_cpu_s, MOST_CPU_RATIO),
        at_most("more memory of a case, KiB", (mib - empty_mib) * _KIB_PER_MIB / N_CASES, MOST_KIB),
        *(
            at_most(f"{what}: {figure}", median(rounds, what, figure), MOST_RATIO)
            for what in whole[0]
            for figure in ("ratio", "cpu_ratio")
        ),
    )


START = Measurement(start_round, start_lines)
IMPORTS = Measurement(imports_round, imports_lines, n_rounds=20)
COLLECTION = Measurement(collection_round, collection_lines)
