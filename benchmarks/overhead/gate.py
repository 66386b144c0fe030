"""The error rates of the default gate: how often it fails with and without a real change."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from benchmarks.overhead.command import Checkout
from benchmarks.overhead.measurement import Measurement, Options, Rows, note
from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.analysis.paired import rate_difference
from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.rules import DEFAULT_RULE_OF_MODEL, parse_rule

Kind = Literal["same", "slower", "worse"]

N_CASES = 300
"""Cases of each of the two models."""
N_SAME = 5
N_CHANGED = 10
SLOWER = 1.15
WORSE_BY = 0.10
_RIGHT = 0.95
_MODELS = ("first", "second")
_SLIPS_PER_MISSING_SKILL = 0.5
_TEST = "benchmarks/overhead/test_gate.py"

# 600 requests of 1 s on 120 seats take 5 s at 120 requests per second. There is no rate limit, so
# a slower server lengthens the run. With 1,200 requests of 0.2 s in the same time, the load of a
# busy machine varied so much that 3 of 20 comparisons of the same code failed.
_POOL = """\
schema = 1

[[provider]]
name = "gate"
api = "simulated"
keys = [{{ name = "key0" }}, {{ name = "key1" }}]
per_key = {{ workers = 60 }}
latency = {{ kind = "log-normal", median_s = {median_s:g}, sigma = 0.1 }}
simulation_seed = {seed}
timeout_s = 30
"""
_MODEL = """
[[provider.model]]
name = "{name}"
persona = "obedient"
skill = {skill:g}
"""
_MEDIAN_S = 1.0


def pool_text(kind: Kind, seed: int) -> str:
    """The pool of one run. Each run has its own seed, so answers and latencies differ."""
    median_s = _MEDIAN_S * (SLOWER if kind == "slower" else 1)
    right = dict.fromkeys(_MODELS, _RIGHT)
    if kind == "worse":
        right[_MODELS[-1]] -= WORSE_BY
    models = (
        _MODEL.format(name=name, skill=1 - (1 - share) / _SLIPS_PER_MISSING_SKILL)
        for name, share in right.items()
    )
    return _POOL.format(median_s=median_s, seed=seed) + "".join(models)


def gate_round(options: Options) -> Rows:
    """Make all runs, one at a time, and judge them. This takes about three minutes.

    `same` compares each of five runs with the other four. `slower` and `worse` each compare ten
    runs with all five. `caught` counts the comparisons in which a rule failed.
    """
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        runs: dict[tuple[Kind, int], Path] = {}
        kinds: dict[Kind, int] = {"same": N_SAME, "slower": N_CHANGED, "worse": N_CHANGED}
        for kind, n in kinds.items():
            for number in range(n):
                note(f"gate: run {number + 1} of {n}, {kind}")
                runs[kind, number] = _run(kind, len(runs), Path(folder), options.checkout)
        rows: Rows = {kind: {"comparisons": 0, "caught": 0} for kind in kinds}
        for (kind, number), run in runs.items():
            for base in range(N_SAME):
                if (kind, number) == ("same", base):
                    continue
                failed = _failed(run, runs["same", base])
                for figure in ("comparisons", *(["caught"] if failed else []), *failed):
                    rows[kind][figure] = rows[kind].get(figure, 0) + 1
    return rows


def gate_title(_: Options) -> str:
    """The title: the comparison, and the expected figures."""
    return (
        f"gate: n = {N_CASES} one-turn cases for each of {len(_MODELS)} models, {_RIGHT:.0%} of"
        " answers right; default rules; answers and latencies differ between runs. Slower:"
        f" latency x {SLOWER:g}. Worse: one model by {WORSE_BY * 100:.0f} points. Expected"
        f" failures of the rule on the model's solve rate: {stated_power():.3f} if it is worse,"
        f" {stated_power(0.0):.5f} without a change"
    )


def stated_power(worse_by: float = WORSE_BY) -> float:
    """The chance that the default rule for the solve rate of one model fails."""
    return chance_of_failing(
        N_CASES,
        base_rate=_RIGHT,
        new_rate=_RIGHT - worse_by,
        bound=parse_rule(DEFAULT_RULE_OF_MODEL).bound,
        confidence=1 - 0.05 / len(_MODELS),
    )


def chance_of_failing(
    n: int, *, base_rate: float, new_rate: float, bound: float, confidence: float
) -> float:
    """The chance that `solved_rate>=bound` fails if the two runs of a case are independent.

    Independence is the worst case. If some cases are hard in both runs and some easy in both, fewer
    pairs differ, and the rule has more power.

    Args:
        n: Pairs of cases.
        base_rate: The chance that a case is solved in the base run, 0 to 1.
        new_rate: The chance in the judged run.
        bound: The bound of the difference, such as -0.02.
        confidence: The confidence of the rule's interval.
    """
    from scipy.stats import binom  # noqa: PLC0415 - a second of CPU, for one table

    losses = base_rate * (1 - new_rate)
    gains = (1 - base_rate) * new_rate / (1 - losses)  # given that the case is not lost
    total = 0.0
    for lost in range(n + 1):
        # More gains can only raise the interval, so the rule fails below a certain number of gains.
        n_failing = 0
        while (
            n_failing <= n - lost
            and rate_difference(n, n_failing, lost, confidence=confidence).high < bound
        ):
            n_failing += 1
        total += binom.pmf(lost, n, losses) * binom.cdf(n_failing - 1, n - lost, gains)
    return float(total)


def _run(kind: Kind, seed: int, folder: Path, checkout: Checkout) -> Path:
    pool = folder / f"pool-{seed}.toml"
    pool.write_text(pool_text(kind, seed), encoding="utf-8")
    directory = folder / f"run-{seed}"
    argv = checkout.pytest(
        _TEST,
        f"--overhead-cases={N_CASES}",
        f"--ultrapar-pool={pool}",
        f"--ultrapar-out={directory}",
    )
    checkout.run(argv)
    return directory


def _failed(run: Path, base: Path) -> list[str]:
    """The rules of the default gate that fail."""
    result = judge([], find_measured_run(str(run)), find_measured_run(str(base)))
    return [each.rule.text for each in result.judged if each.failed]


GATE = Measurement(gate_round, gate_title, n_rounds=1, warm_up=False)
