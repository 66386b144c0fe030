"""How much of an uneven pool a run uses, next to the static even split of the scripts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.overhead.command import ROOT
from benchmarks.overhead.command_line import note
from benchmarks.overhead.rounds import Measurement
from benchmarks.overhead.tables import at_least, figures, goals, median
from pytest_ultrapar.analysis.run_summary import read_summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.overhead.command_line import Options
    from benchmarks.overhead.tables import Rows

POLICIES = ("even", "split")
LEAST_EFFICIENCY = 0.90
N_PROCESSES = (4,)

_N_NUMBERS = 150
"""Cases of each of the pool's four models: at the bound 15 s of six-turn episodes of 0.6 to 1.9 s,
so that the uneven end, a part of one episode, is a few per cent."""


def matrix_round(options: Options) -> Rows:
    """Run the uneven matrix under each policy in turn.

    `makespan_s` is first send to last end, `bound_s` its lower bound by what the requests took.

    Raises:
        CommandError: A run ended badly.
    """
    rows: Rows = {}
    for n in options.n or N_PROCESSES:
        for policy in POLICIES:
            note(f"matrix: -n {n}, policy {policy}")
            rows[f"-n {n}, {policy}"] = _run(policy, n, options)
    return rows


def _run(policy: str, n: int, options: Options) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="matrix-") as temporary:
        directory = Path(temporary, "run")
        argv = options.checkout.pytest(
            f"-n{n}",
            f"{options.checkout.suite}/test_episodes.py",
            f"--overhead-cases={options.cases or _N_NUMBERS}",
            f"--ultrapar-pool={ROOT / 'pools' / 'overhead-matrix.toml'}",
            f"--ultrapar-policy={policy}",
            f"--ultrapar-out={directory}",
        )
        options.checkout.run(argv)
        summary = read_summary(directory)
    assert summary is not None
    makespan_s, bound_s = summary.statistics.makespan_s, summary.bound_s
    assert makespan_s is not None
    assert bound_s is not None
    return {
        "n": summary.statistics.n_timed,
        "makespan_s": makespan_s,
        "bound_s": bound_s,
        "efficiency": bound_s / makespan_s,
    }


def matrix_lines(rounds: Sequence[Rows], _: Options) -> Iterator[str]:
    """Efficiency on the uneven pool, by policy."""
    yield (
        "matrix: cases of six turns on an uneven pool, simulated; "
        f"median [min-max] of {len(rounds)}"
    )
    yield from figures(rounds)
    yield from goals(
        *(
            at_least(f"{label}: efficiency", median(rounds, label, "efficiency"), LEAST_EFFICIENCY)
            for label in rounds[0]
            if label.endswith(POLICIES[0])
        )
    )


MATRIX = Measurement(matrix_round, matrix_lines)
