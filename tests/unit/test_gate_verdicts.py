"""Verdicts on runs that lost cases, have the same answers, or have too few cases."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.compare.gate import GateResult, judge
from pytest_ultrapar.compare.report import gate_section
from pytest_ultrapar.compare.rules import parse_rule
from tests.unit.compared_runs import outcomes_of, same_cases, write_run

N = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdicts")
    skipping = [*outcomes_of(N, solved=0.9)[:20], *["skipped"] * 20]
    one_worse = [*outcomes_of(N, solved=0.9)[1:], "unsolved"]
    write_run(folder / "base", same_cases(N), scores=True)
    write_run(folder / "again", same_cases(N), scores=True)
    write_run(folder / "more", same_cases(60), scores=True)
    write_run(folder / "skipping", {**same_cases(N), "beta": skipping}, scores=True)
    write_run(folder / "turned", {**same_cases(N), "beta": one_worse}, scores=True)
    return folder


def gate(folder, run: str, base: str | None, *rules: str) -> GateResult:
    baseline = find_measured_run(str(folder / base)) if base else None
    return judge(list(map(parse_rule, rules)), find_measured_run(str(folder / run)), baseline)


def verdict(folder, run: str, base: str | None, rule: str) -> str:
    (judged,) = gate(folder, run, base, rule).judged
    return judged.verdict


def test_run_that_lost_cases_of_the_baseline_fails_the_default_rules(folder):
    judged = {each.rule.text: each for each in gate(folder, "base", "more").judged}
    assert judged["kept>=0.98"].verdict == "FAIL"
    assert judged["kept>=0.98"].figure.value == pytest.approx(2 / 3)
    assert judged["kept>=0.98"].n == 120
    assert verdict(folder, "more", "base", "kept>=1") == "pass"


@pytest.mark.parametrize(
    "rule",
    [
        "changed<=0",
        "solved_rate>=-0.02",
        "solved_rate[model=beta]>=-0%",
        "score.workflow>=-0.001",
        "tokens_out<=+0%",
    ],
)
def test_runs_with_the_same_answers_pass(folder, rule):
    assert verdict(folder, "again", "base", rule) == "pass"


def test_interval_of_runs_with_the_same_answers_still_covers_other_cases(folder):
    (judged,) = gate(folder, "again", "base", "solved_rate>=-0.02").judged
    assert judged.figure.interval.low < -0.02
    notes = gate_section(gate(folder, "again", "base", "solved_rate>=-0.02")).notes
    assert any("every case has the same figure in both runs" in note for note in notes)


def test_undecided_rule_shows_how_many_cases_can_decide_it(folder):
    rules = ("solved_rate>=0.85", "solved_rate>=0.9", "solved_rate>=0.5")
    section = gate_section(gate(folder, "base", None, *rules))
    assert section.header[-1] == "n to decide"
    close, on_the_bound, decided = [row[-1] for row in section.rows]
    # Wilson's interval of 0.9 with n = 80 reaches down to 0.8154: (0.0846 / 0.05)^2 x 80.
    assert close == "~230"
    assert on_the_bound == "-"
    assert decided == "-"
