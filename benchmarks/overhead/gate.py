"""Whether the default gate stays quiet where nothing changed and speaks where something did."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from benchmarks.overhead.command_line import note
from benchmarks.overhead.tables import table
from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.analysis.paired import rate_difference
from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.rules import DEFAULT_RULE_OF_MODEL, parse_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.overhead.command import Checkout
    from benchmarks.overhead.command_line import Found, Options

Kind = Literal["same", "slower", "worse"]

N_CASES = 300
"""Of each of the two models."""
N_SAME = 5
N_CHANGED = 10
SLOWER = 1.15
WORSE_BY = 0.10
_RIGHT = 0.95
_MODELS = ("first", "second")
_SLIPS_PER_MISSING_SKILL = 0.5
_TEST = "benchmarks/overhead/test_gate.py"

# 600 requests of 1 s on 120 seats take 5 s at 120 requests per second. No rate limit: a slower
# server then shows as a longer run. With 1,200 requests of 0.2 s in the same time, a machine that
# others kept busy was so unlike itself that 3 of 20 comparisons of the same code failed.
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


class Judgement(msgspec.Struct, frozen=True):
    """The default gate on one run beside one base run.

    Attributes:
        kind: What was changed in the run.
        base: Number of the base run.
        run: Number of the run among those of its kind.
        failed: The rules that failed, as text.
    """

    kind: Kind
    base: int
    run: int
    failed: tuple[str, ...]


def pool_text(kind: Kind, seed: int) -> str:
    """The pool of one run; each has a seed of its own, so other answers after other times."""
    median_s = _MEDIAN_S * (SLOWER if kind == "slower" else 1)
    right = dict.fromkeys(_MODELS, _RIGHT)
    if kind == "worse":
        right[_MODELS[-1]] -= WORSE_BY
    models = (
        _MODEL.format(name=name, skill=1 - (1 - share) / _SLIPS_PER_MISSING_SKILL)
        for name, share in right.items()
    )
    return _POOL.format(median_s=median_s, seed=seed) + "".join(models)


def measure_gate(options: Options) -> Found:
    """Run all runs one after another and judge them; some three minutes.

    `same`: each of five runs against each other one. `slower` and `worse`: ten runs each, and each
    against every one of the five.
    """
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        runs: dict[tuple[Kind, int], Path] = {}
        kinds: dict[Kind, int] = {"same": N_SAME, "slower": N_CHANGED, "worse": N_CHANGED}
        for kind, n in kinds.items():
            for number in range(n):
                seed = len(runs)
                runs[kind, number] = _run(kind, seed, Path(folder), options.checkout)
                note(f"gate: run {number + 1} of {n}, {kind}")
        judgements = [
            _judgement(kind, base, number, runs)
            for kind, number in runs
            for base in range(N_SAME)
            if (kind, number) != ("same", base)
        ]
    return gate_lines(judgements), judgements


def gate_lines(judgements: Sequence[Judgement]) -> Iterator[str]:
    """What was found, and what was to be expected."""
    yield (
        f"gate: n = {N_CASES} one-turn cases for each of {len(_MODELS)} models, right with"
        f" {_RIGHT:.0%}; default rules; every run with answers and latencies of its own; simulated"
    )
    rows = []
    for kind, what in (
        ("same", "same code, each run against each"),
        ("slower", f"latency x {SLOWER:g}, each run against one"),
        ("slower", f"latency x {SLOWER:g}, each run against each"),
        ("worse", f"one model {WORSE_BY * 100:.0f} points worse, each run against one"),
        ("worse", f"one model {WORSE_BY * 100:.0f} points worse, each run against each"),
    ):
        own = [each for each in judgements if each.kind == kind]
        if what.endswith("one"):
            own = [each for each in own if each.base == each.run % N_SAME]
        caught = [each for each in own if each.failed]
        rules = dict.fromkeys(rule for each in own for rule in each.failed)
        counts = (f"{sum(rule in each.failed for each in own)} {rule}" for rule in rules)
        rows.append([what, f"{len(caught)} of {len(own)}", ", ".join(counts) or "-"])
    yield from table(["what", "caught", "by rule"], rows)
    yield (
        "stated beforehand, of the rule on the model's solved rate alone:"
        f" {stated_power():.3f} where it is {WORSE_BY * 100:.0f} points worse,"
        f" {stated_power(0.0):.5f} where nothing changed"
    )


def stated_power(worse_by: float = WORSE_BY) -> float:
    """The chance that the default rule on one model's solved rate fails."""
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
    """The chance that `solved_rate>=bound` fails, where nothing but chance binds a case's two runs.

    That is the worst case: where some cases are hard in both runs and some easy in both, fewer
    pairs differ, and the rule sees more.

    Args:
        n: Pairs of cases.
        base_rate: Chance that a case is solved in the base run, 0 to 1.
        new_rate: The same in the run that is judged.
        bound: Of the difference, such as -0.02.
        confidence: Of the rule's interval.
    """
    from scipy.stats import binom  # noqa: PLC0415 - a second of CPU, for one table

    losses = base_rate * (1 - new_rate)
    gains = (1 - base_rate) * new_rate / (1 - losses)  # of a case that is not lost
    total = 0.0
    for lost in range(n + 1):
        # More gains only raise the interval, so it fails below some number of them.
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


def _judgement(kind: Kind, base: int, number: int, runs: dict[tuple[Kind, int], Path]) -> Judgement:
    baseline = find_measured_run(str(runs["same", base]))
    result = judge([], find_measured_run(str(runs[kind, number])), baseline)
    failed = tuple(each.rule.text for each in result.judged if each.failed)
    return Judgement(kind, base, number, failed)
