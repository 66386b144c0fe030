"""The measurement of the default gate: its pools, its power and what it says."""

from __future__ import annotations

import random

import pytest

from bench_suites.overhead import gate
from bench_suites.overhead.command import Checkout, measured_environment
from bench_suites.overhead.gate import (
    Judgement,
    chance_of_failing,
    gate_lines,
    pool_text,
    stated_power,
)
from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.analysis.paired import rate_difference
from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.rules import parse_rule
from pytest_ultrapar.pool.config import Overrides, load_pool


@pytest.mark.parametrize(("base", "new"), [(0.9, 0.8), (0.6, 0.6), (1.0, 0.9)])
def test_chance_of_failing_is_how_often_it_fails(base, new):
    rng = random.Random(4)
    n, rounds = 60, 3000
    failed = 0
    for _ in range(rounds):
        pairs = [(rng.random() < base, rng.random() < new) for _ in range(n)]
        gained, lost = pairs.count((False, True)), pairs.count((True, False))
        failed += rate_difference(n, gained, lost).high < -0.02
    stated = chance_of_failing(n, base_rate=base, new_rate=new, bound=-0.02, confidence=0.95)
    assert stated == pytest.approx(failed / rounds, abs=0.03)


def test_stated_power_of_the_default_rule():
    assert stated_power() > 0.8
    assert stated_power(0.0) < 0.001


def test_pools_differ_in_what_their_kind_says(tmp_path):
    pools = {}
    for kind in ("same", "slower", "worse"):
        path = tmp_path / f"{kind}.toml"
        path.write_text(pool_text(kind, 3))
        (pools[kind],) = load_pool(path, environ={}, overrides=Overrides()).providers
    skills = {
        kind: [round(model.simulation.skill, 6) for model in provider.models]
        for kind, provider in pools.items()
    }
    assert skills == {"same": [0.9, 0.9], "slower": [0.9, 0.9], "worse": [0.9, 0.7]}
    medians = {kind: one.models[0].simulation.latency.median_s for kind, one in pools.items()}
    assert medians["slower"] == pytest.approx(1.15 * medians["same"])
    assert medians["worse"] == medians["same"]
    assert {one.simulation_seed for one in pools.values()} == {3}


def test_lines_count_what_was_caught():
    judgements = [
        Judgement("same", base, run, ()) for base in range(5) for run in range(5) if base != run
    ]
    judgements += [
        Judgement(kind, base, run, ("service<=+7%",) if base else ())
        for kind in ("slower", "worse")
        for base in range(5)
        for run in range(10)
    ]
    said = [" ".join(line.split()) for line in gate_lines(judgements)]
    assert "| same code, each run against each | 0 of 20 | - |" in said
    assert "| latency x 1.15, each run against one | 8 of 10 | 8 service<=+7% |" in said
    assert "| latency x 1.15, each run against each | 40 of 50 | 40 service<=+7% |" in said


@pytest.mark.slow
def test_model_that_became_worse_is_caught_and_the_same_one_is_not(tmp_path):
    # Answers hang on content and seed alone, so this holds on a busy machine, too.
    rules = [parse_rule("same_answers"), parse_rule("solved_rate[model=second]>=-0.02")]
    with measured_environment() as variables:
        base, same, worse = (
            find_measured_run(str(gate._run(kind, seed, tmp_path, Checkout(variables))))
            for kind, seed in (("same", 0), ("same", 1), ("worse", 2))
        )
    assert [each.failed for each in judge(rules, same, base).judged] == [False, False]
    assert [each.failed for each in judge(rules, worse, base).judged] == [True, True]
