"""Speed of two runs: intervals as in `ultrapar bench`, and figures that fit together."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.measured_run import find_measured_run, read_rows
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.compare.bench.merged import full_speedup, read_mode_run
from pytest_ultrapar.compare.figures import change, figure_of_run
from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.pairing import pair
from pytest_ultrapar.compare.report import gate_section
from pytest_ultrapar.compare.rules import Rule, parse_rule
from tests.unit.compared_runs import outcomes_of, same_cases, write_run


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speed")
    write_run(folder / "base", same_cases())
    write_run(folder / "slow", same_cases(), factor=1.2)
    write_run(folder / "few", {"alpha": outcomes_of(7, solved=1)})
    return folder


def paired(paths, base="base", new="slow"):
    runs = [find_measured_run(str(paths / name)) for name in (base, new)]
    return pair(*runs, *map(read_rows, runs))


def test_change_of_throughput_has_the_interval_of_bench(paths):
    pairing = paired(paths)
    found = change(parse_rule("throughput>=-10%"), pairing)
    base, new = (
        read_mode_run(paths / name, read_summary(paths / name)) for name in ("base", "slow")
    )
    benched = full_speedup(base, new, lambda _: True)
    assert 1 + found.value == pytest.approx(benched.factor, rel=1e-5)
    assert [1 + each for each in found.interval] == pytest.approx(benched.interval, rel=1e-5)
    longer = change(parse_rule("makespan<=+10%"), pairing)
    expected = sorted(1 / each for each in benched.interval)
    assert [1 + each for each in longer.interval] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("metric", ["throughput", "makespan", "efficiency", "coverage"])
def test_counts_of_a_run_have_no_interval(paths, metric):
    run = find_measured_run(str(paths / "base"))
    assert figure_of_run(Rule(metric, metric), run, read_rows(run)).interval is None


def test_speedup_has_an_interval_and_names_its_basis(paths):
    run = find_measured_run(str(paths / "base"))
    low, high = run.summary.statistics.speedup_interval
    (judged,) = judge([parse_rule(f"speedup>={(low + high) / 2}")], run, None).judged
    assert (judged.figure.interval, judged.verdict) == ((low, high), "undecided")
    (judged,) = judge([parse_rule(f"speedup>={high * 1.01}")], run, None).judged
    assert judged.verdict == "FAIL"
    notes = gate_section(judge([parse_rule("speedup>=1")], run, None)).notes
    basis = "the sum of that run's service times and is therefore an upper bound"
    assert f"the speed-up of the run is based on {basis}" in notes


def test_speedup_of_few_cases_decides_no_bound_near_it(paths):
    run = find_measured_run(str(paths / "few"))
    near, far = judge([parse_rule("speedup>=4"), parse_rule("speedup>=100")], run, None).judged
    low, high = near.figure.interval
    assert low < near.figure.value < 4 < high
    assert (near.verdict, far.verdict) == ("undecided", "FAIL")


def test_means_of_service_fit_their_change(paths):
    pairing = paired(paths)
    found = change(parse_rule("service<=+7%"), pairing)
    assert found.new / found.base - 1 == pytest.approx(found.value)
    section = gate_section(judge([parse_rule("service<=+7%")], pairing.new, pairing.base))
    assert any("geometric mean" in note for note in section.notes)
