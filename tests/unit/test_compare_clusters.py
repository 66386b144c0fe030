"""The gate and the end table allow for dependent cases that a suite declares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.analysis.paired import (
    clustered_mean_interval,
    clustered_share,
    mean_interval,
)
from pytest_ultrapar.analysis.statistics import wilson_interval
from pytest_ultrapar.compare.figures import UNRATED
from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.rules import parse_rule
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.terminal_summary import brief_lines
from tests.unit.compared_runs import outcomes_of, write_run
from tests.unit.test_report_summary import lines as told_of

MODELS = ("alpha", "beta", "gamma", "delta")
N = 20


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four models that solve the same 6 of 20 tasks, which tell no more than one model."""
    path = tmp_path_factory.mktemp("clusters") / "run"
    alike = {model: outcomes_of(N, solved=0.3) for model in MODELS}
    write_run(path, alike, clustered=True, summary_by=("suite",))
    return find_measured_run(str(path))


def judged(run, rule):
    (found,) = judge([parse_rule(rule)], run, None).judged
    return found


def test_gate_is_undecided_if_only_independent_cases_can_decide(run):
    low, high = wilson_interval(6 * len(MODELS), N * len(MODELS))
    assert high < 0.45
    found = judged(run, "solved_rate>=0.45")
    expected = clustered_share((at % N, at % N < 6) for at in range(N * len(MODELS)))
    interval = found.figure.interval
    assert (found.verdict, interval) == ("undecided", (expected.low, expected.high))
    assert interval.low < low
    assert interval.high > high


def test_end_table_has_the_interval_of_the_gate(run):
    low, high = judged(run, "solved_rate>=0.45").figure.interval
    text = "\n".join(told_of(run.summary))
    assert f"{low * 100:.1f} to {high * 100:.1f}" in text
    assert "Dependent cases count as one cluster" in text


def test_mean_score_of_equal_models_has_the_interval_of_one_model(tmp_path):
    path = tmp_path / "scored"
    alike = {model: outcomes_of(N, solved=0.3) for model in MODELS}
    write_run(path, alike, clustered=True, scores=True)
    scored = find_measured_run(str(path))
    of_all = judged(scored, "score.workflow>=0.5").figure
    of_one = judged(scored, "score.workflow[model=beta]>=0.5").figure
    assert of_all.value == pytest.approx(of_one.value)
    width_of_all, width_of_one = (one.interval.high - one.interval.low for one in (of_all, of_one))
    assert width_of_all == pytest.approx(width_of_one, rel=0.1)


@pytest.mark.parametrize("outcome", ["solved", "scored"])
@pytest.mark.parametrize("summary_by", [("model",), ("suite",)])
def test_end_table_has_the_mean_of_the_gate(tmp_path, outcome, summary_by):
    alike = {model: [outcome] * N for model in MODELS}
    write_run(tmp_path / "run", alike, clustered=True, scores=True, summary_by=summary_by)
    run = find_measured_run(str(tmp_path / "run"))
    rule = "score.workflow>=0.5"
    if summary_by == ("model",):
        rule = "score.workflow[model=beta]>=0.5"
    figure = judged(run, rule).figure
    text = "\n".join(told_of(run.summary))
    low, high = figure.interval
    assert f"{figure.value:.3f} ({low:.3f} to {high:.3f})" in text
    assert ("solved" in text.partition("n: graded")[0]) == (outcome == "solved")


def test_solved_share_of_a_few_cases_shows_their_number(tmp_path):
    """For example, a refused prompt in a suite that grades by scores alone."""
    outcomes = {"alpha": ["scored"] * 9 + ["unsolved"], "beta": ["scored"] * 10}
    write_run(tmp_path / "run", outcomes, scores=True)
    run = find_measured_run(str(tmp_path / "run"))
    text = "\n".join(told_of(run.summary))
    assert "0.0 % of 1" in text
    screen = brief_lines(run.summary, [], directory="d", width=80)
    rows = {line.split()[0]: line.split()[1:] for line in screen if line.strip()}
    assert rows["alpha"][:5] == ["10", "0%", "of", "1", "0.20"]
    assert rows["beta"][:3] == ["10", "-", "0.20"]
    with pytest.raises(ConfigError, match="no score quality"):
        judged(run, "score.quality>=1")
    figure = judged(run, "solved_rate>=0.5")
    assert (figure.n, figure.figure.value) == (1, 0.0)
    assert judged(run, "solved_rate[model=beta]>=0.5").note == UNRATED


def test_interval_of_a_mean_without_clusters_is_the_plain_interval():
    values = [0.1 * at**2 for at in range(12)]
    assert clustered_mean_interval(list(enumerate(values))) == mean_interval(values)


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(0, 1)), min_size=2, max_size=30))
def test_interval_of_a_mean_is_never_narrower_with_clusters(values):
    low, high = mean_interval([value for _, value in values])
    found = clustered_mean_interval(values)
    assert found.low <= low
    assert found.high >= high
