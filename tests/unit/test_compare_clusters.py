"""Where a suite says which cases depend on each other, the gate and the end table allow for it."""

from __future__ import annotations

from importlib import import_module

import pytest

from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.rules import parse_rule
from pytest_ultrapar.report.summary import summary_lines
from pytest_ultrapar.results.clustered import clustered_share
from pytest_ultrapar.results.measured_run import find_measured_run
from pytest_ultrapar.results.statistics import wilson_interval
from tests.unit.compared_runs import outcomes_of, write_run

MODELS = ("alpha", "beta", "gamma", "delta")
N = 20
SUITES = (
    "bench_suites.phase51.test_baseline",
    "bench_suites.phase52.test_qwen_scale",
    "bench_suites.phase53.test_flawed_workflow",
    "bench_suites.phase54.test_tool_reliability",
    "bench_suites.phase55.test_prompt_sensitivity",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four models that solve the very same 6 of 20 tasks: no more is known than of one model."""
    path = tmp_path_factory.mktemp("clusters") / "run"
    alike = {model: outcomes_of(N, solved=0.3) for model in MODELS}
    write_run(path, alike, clustered=True, summary_by=("suite",))
    return find_measured_run(str(path))


def judged(run, rule):
    (found,) = judge([parse_rule(rule)], run, None).judged
    return found


def test_gate_is_undecided_where_only_independent_cases_would_decide(run):
    low, high = wilson_interval(6 * len(MODELS), N * len(MODELS))
    assert high < 0.45
    found = judged(run, "solved_rate>=0.45")
    expected = clustered_share((at % N, at % N < 6) for at in range(N * len(MODELS)))
    assert (found.verdict, found.low, found.high) == ("undecided", expected.low, expected.high)
    assert found.low < low
    assert found.high > high


def test_gate_of_one_model_has_wilsons_interval(run):
    found = judged(run, "solved_rate[model=beta]>=0.45")
    assert (found.low, found.high) == pytest.approx(wilson_interval(6, N))


def test_end_table_has_the_interval_of_the_gate(run):
    found = judged(run, "solved_rate>=0.45")
    text = "\n".join(summary_lines(run.summary, (), directory="out", width=200))
    assert f"{found.low * 100:.1f} to {found.high * 100:.1f}" in text
    assert "depend on each other counted as one cluster" in text


def test_share_of_changed_cases_allows_for_clusters(run, tmp_path):
    path = tmp_path / "other"
    write_run(path, {model: outcomes_of(N, solved=0.5) for model in MODELS}, clustered=True)
    (found,) = judge([parse_rule("changed<=0.1")], find_measured_run(str(path)), run).judged
    low, _ = wilson_interval(4 * len(MODELS), N * len(MODELS))
    assert low > 0.1
    assert (found.value, found.verdict) == (0.2, "undecided")


def test_workflow_phases_name_the_clusters_of_their_own_tables():
    """What `BenchCase.draw` says of a case: the task type and the repetition."""
    marks = [import_module(name).pytestmark for name in SUITES]
    assert [mark.kwargs["cluster"] for mark in marks] == [("task_type",)] * 5
