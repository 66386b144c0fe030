"""How much of an uneven pool is used, compared with the static even split of the scripts."""

from __future__ import annotations

from benchmarks.overhead.comparison import summary_of_run
from benchmarks.overhead.measurement import Goal, Measurement, Options, Rows, note

POLICIES = ("even", "split")

_N_NUMBERS = 150
"""Cases of each of the pool's four models. The lower bound is 15 s with six-turn episodes of 0.6 to
1.9 s. The uneven end of a run is shorter than one episode: only a few per cent of the run."""


def matrix_round(options: Options) -> Rows:
    """Run the uneven matrix under each policy in turn.

    `makespan_s` is the time from the first send to the last end. `bound_s` is its lower bound with
    the measured durations of requests.

    Raises:
        CommandError: A run failed.
    """
    rows: Rows = {}
    for n in options.n or (4,):
        for policy in POLICIES:
            note(f"matrix: -n {n}, policy {policy}")
            summary, _ = summary_of_run(
                options.checkout,
                "overhead-matrix.toml",
                f"-n{n}",
                f"{options.checkout.suite}/test_episodes.py",
                f"--overhead-cases={options.cases or _N_NUMBERS}",
                f"--ultrapar-policy={policy}",
            )
            makespan_s, bound_s = summary.statistics.makespan_s, summary.bound_s
            assert makespan_s is not None
            assert bound_s is not None
            rows[f"-n {n}, {policy}"] = {
                "n": summary.statistics.n_timed,
                "makespan_s": makespan_s,
                "bound_s": bound_s,
                "efficiency": bound_s / makespan_s,
            }
    return rows


MATRIX = Measurement(
    matrix_round,
    "matrix: cases of six turns on an uneven pool",
    (Goal(f"-n 4, {POLICIES[0]}", "efficiency", at_least=0.90),),
)
