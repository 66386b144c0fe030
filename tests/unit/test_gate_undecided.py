"""Undecided rules: too few cases, or a client that limited the run."""

from __future__ import annotations

import msgspec
import pytest

from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.compare.comparison import compare_runs
from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.report import comparison_sections, failure_line, gate_section
from pytest_ultrapar.compare.rules import METRICS, parse_rule
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.store.run_directory import SUMMARY_FILE
from tests.unit.compared_runs import outcomes_of, same_cases, write_run

BUSY = "31% of the makespan was spent in the client"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undecided")
    write_run(folder / "ten", {"alpha": outcomes_of(10, solved=0.5)}, scores=True)
    write_run(folder / "base", same_cases(), scores=True)
    write_run(folder / "slow", same_cases(), factor=1.2, scores=True)
    for name, factor in (("busy", 1.0), ("busy-slow", 1.2)):
        path = write_run(folder / name, same_cases(), factor=factor, scores=True)
        summary = msgspec.structs.replace(read_summary(path), client_bound=BUSY)
        (path / SUMMARY_FILE).write_bytes(msgspec.json.encode(summary))
    return folder


def gate(folder, run, base, *rules, undecided="pass"):
    baseline = find_measured_run(str(folder / base)) if base else None
    run = find_measured_run(str(folder / run))
    return judge(list(map(parse_rule, rules)), run, baseline, undecided=undecided)


def test_five_of_ten_solved_is_undecided_against_seven_tenths(folder):
    result = gate(folder, "ten", None, "solved_rate>=0.7", "solved_rate>=0.1")
    section = gate_section(result)
    assert section.title.endswith(": 0 failed, 1 passed, 1 undecided (passes)")
    assert [row[1] for row in section.rows] == ["undecided", "pass"]
    assert any("--ultrapar-gate-undecided fail" in note for note in section.notes)
    assert not result.failed


def test_undecided_rule_fails_if_the_option_says_fail(folder):
    result = gate(folder, "ten", None, "solved_rate>=0.7", undecided="fail")
    assert result.failed
    assert gate_section(result).title.endswith(": 0 failed, 0 passed, 1 undecided (FAILS)")
    undecided = "1 rule undecided, and undecided rules fail: solved_rate>=0.7"
    assert failure_line(result) == undecided
    both = gate(folder, "ten", None, "solved_rate>=0.7", "solved_rate>=0.9", undecided="fail")
    assert failure_line(both) == f"1 rule failed: solved_rate>=0.9; {undecided}"
    assert not gate(folder, "ten", None, "solved_rate>=0.1", undecided="fail").failed


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("solved_rate.point>=0.7", "FAIL"),
        ("solved_rate.point[model=alpha]>=0.5", "pass"),
        ("score.workflow.point>=0.6", "FAIL"),
        ("latency.p95.point<=1100ms", "FAIL"),
        ("latency.mean.point<=2s", "pass"),
        ("tokens_out.point<=2", "pass"),
        ("speedup.point>=100", "FAIL"),
    ],
)
def test_point_estimate_decides_regardless_of_its_interval(folder, rule, verdict):
    (judged,) = gate(folder, "ten", None, rule).judged
    assert judged.verdict == verdict


@pytest.mark.parametrize("metric", [each for each in METRICS if each.unit != "none"])
def test_every_metric_with_an_interval_has_a_point_estimate(metric):
    bound = "1s" if metric.unit == "seconds" else "1"
    name = metric.name.replace("K", "3")
    text = f"{name}.point>={bound}"
    if metric.name in {"coverage", "kept", "efficiency"}:
        with pytest.raises(ConfigError, match="has no interval"):
            parse_rule(text)
    else:
        rule = parse_rule(text)
        assert (rule.metric, rule.point) == (name, True)


SPEED_RULES = (
    "throughput>=-7%",
    "makespan<=+7%",
    "service<=+7%",
    "latency.p95<=+5%",
    "latency.mean<=1s",
    "throughput>=100",
    "speedup>=100",
    "efficiency>=0.99",
    "throughput.point>=-7%",
)


@pytest.mark.parametrize(("run", "base"), [("busy-slow", "base"), ("slow", "busy")])
def test_speed_is_undecided_if_the_client_limited_a_run(folder, run, base):
    judged = gate(folder, run, base, *SPEED_RULES).judged
    relative = [each for each in judged if each.rule.needs_baseline]
    absolute = [each for each in judged if not each.rule.needs_baseline]
    assert {each.verdict for each in relative} == {"undecided"}
    assert all(BUSY in each.note for each in relative)
    # A baseline does not affect the run's own figures.
    expected = {"undecided"} if run == "busy-slow" else {"FAIL"}
    assert {each.verdict for each in absolute} == expected
    assert {each.n_to_decide for each in relative} == {None}


def test_answers_are_judged_even_if_the_client_limited_the_run(folder):
    rules = ("solved_rate>=-0.02", "same_answers", "solved_rate>=0.99", "kept>=1", "tokens_out<=3")
    result = gate(folder, "busy", "base", *rules)
    assert [each.verdict for each in result.judged] == ["pass", "pass", "FAIL", "pass", "pass"]


def test_compare_reports_no_change_of_speed_if_the_client_was_busy(folder):
    base, slow, busy = (
        find_measured_run(str(folder / name)) for name in ("base", "slow", "busy-slow")
    )
    verdict, *_ = comparison_sections(base, compare_runs(base, [busy]))
    (said,) = [note for note in verdict.notes if "speed" in note]
    assert said.startswith(
        "speed: undecided, because the client, not the pool, limited the speed of new"
    )
    assert "throughput -16.7 %" in said
    verdict, *_ = comparison_sections(base, compare_runs(base, [slow]))
    (said,) = [note for note in verdict.notes if "speed" in note]
    assert said.startswith("speed: throughput -16.7 %")
