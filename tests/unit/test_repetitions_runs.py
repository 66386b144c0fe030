"""Runs with repetitions: end table, benchmark file, comparison and gate."""

from __future__ import annotations

import json

import pytest

from pytest_ultrapar.analysis.equivalence import equivalence
from pytest_ultrapar.analysis.measured_run import find_measured_run, read_rows
from pytest_ultrapar.analysis.repetitions import cell_share, share_of
from pytest_ultrapar.analysis.statistics import wilson_interval
from pytest_ultrapar.compare.comparison import compare_runs
from pytest_ultrapar.compare.gate import judge
from pytest_ultrapar.compare.report import comparison_sections
from pytest_ultrapar.compare.rules import parse_rule
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.sections import text_lines
from tests.unit.compared_runs import write_run
from tests.unit.test_report_summary import lines as told_of

LETTERS = dict(
    zip("spuiek", ("solved", "partial", "unsolved", "infra", "error", "skipped"), strict=True)
)
REPEATS = 3
ALPHA = ("sss", "ssu", "uuu", "suu", "ssi", "pps")
BETA = ("sss", "sss", "uuu", "uus", "uuu", "iii")


def outcomes(cells):
    return [LETTERS[letter] for word in cells for letter in word]


def written(path, alpha=ALPHA, beta=BETA, **options):
    given = {"alpha": outcomes(alpha), "beta": outcomes(beta)}
    write_run(path, given, repeats=REPEATS, **options)
    return find_measured_run(str(path))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("repeated") / "run", summary_by=("model",))


def judged(rule, run, base=None):
    (found,) = judge([parse_rule(rule)], run, base).judged
    return found


def rows_of(run, model):
    return [row for row in read_rows(run).values() if row.model == model]


# -- the run itself --------------------------------------------------------------------------------


def test_end_table_has_the_interval_over_cells(run):
    graded = [row for row in rows_of(run, "alpha") if row.graded]
    share = share_of(graded, [row.outcome == "solved" for row in graded])
    (alpha, _) = run.summary.cells
    assert alpha.interval == (share.low, share.high)
    low, high = wilson_interval(9, 17)
    assert share.low < low < high < share.high


def test_summary_shows_figures_of_repetitions_with_their_cells(run):
    lines = told_of(run.summary)
    at = next(i for i, line in enumerate(lines) if line.startswith("figure"))
    assert lines[at].split() == ["figure", "model", "cells", "mean", "95", "%", "interval"]
    shown = {
        tuple(line.split()[:2]): " ".join(line.split()[2:]) for line in lines[at + 1 : at + 13]
    }
    assert list(shown)[::3] == [
        (figure, "alpha") for figure in ("pass@1", "pass@3", "pass^3", "majority")
    ]
    # alpha: one of six cells has only two grades. Partial repetitions are not solved.
    found = cell_share("pass@3", rows_of(run, "alpha"))
    low, high = found.interval
    assert shown["pass@3", "alpha"] == f"5 of 6 80.0 % {low * 100:.1f} to {high * 100:.1f}"
    assert shown["pass^3", "alpha"].startswith("5 of 6 20.0 %")
    assert shown["majority", "alpha"].startswith("6 50.0 %")
    assert shown["pass@1", "beta"].startswith("5 of 6 46.7 %")
    assert shown["majority", "all"] == "11 of 12 45.5 % -"
    legend = lines[at + 13]
    assert (
        "pass@3: at least one of 3 repetitions of a cell is solved; pass^3: all are; majority"
        in legend
    )
    assert "a cell is left out if fewer than k of its repetitions were graded" in legend
    assert any("repetitions of a cell" in line and "Wilson interval" in line for line in lines)


def test_benchmark_file_has_each_figure_with_its_cells(run):
    entries = json.loads((run.directory / "benchmark.json").read_text())["benchmarks"]
    (own,) = (
        entry["extra_info"]["repetitions"]
        for entry in entries
        if entry["name"].endswith("alpha]") and "serial" not in entry["name"]
    )
    assert list(own) == ["n", "pass@1", "pass@3", "pass^3", "majority"]
    assert own["n"] == REPEATS
    found = cell_share("pass@3", rows_of(run, "alpha"))
    assert own["pass@3"] == {
        "value": found.value,
        "interval": list(found.interval),
        "n": 5,
        "n_left_out": 1,
    }
    assert own["pass@1"]["n"] == 6


# -- gates -----------------------------------------------------------------------------------------


def test_gate_judges_figures_of_cells(run):
    found = judged("pass@2[model=alpha]>=0.2", run)
    expected = cell_share("pass@2", rows_of(run, "alpha"))
    assert (found.verdict, found.figure.value, found.n) == ("pass", expected.value, 6)
    assert found.figure.interval == expected.interval
    assert judged("pass^3[model=beta]>=0.99", run).verdict == "FAIL"
    assert judged("majority>=0.5", run).verdict == "undecided"
    assert judged("majority.point>=0.6", run).verdict == "FAIL"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("pass@4>=0.8", "pass@4 needs 4 repetitions of a cell, but the run has 3"),
        ("pass^9[model=beta]>=-0.1", "but the run and its baseline share only 3"),
        ("pass@2[repeat=1]>=0.5", "but the run has 1 (--ultrapar-repeats)"),
    ],
)
def test_rule_with_more_repetitions_than_the_run_is_refused(run, tmp_path, rule, says):
    base = written(tmp_path / "base")
    with pytest.raises(ConfigError) as refused:
        judge([parse_rule(rule)], run, base)
    assert str(refused.value).startswith(f"gate rule {rule!r}: ")
    assert says in str(refused.value)


# -- two runs --------------------------------------------------------------------------------------

BETTER = ("sss", "sss", "suu", "ssu", "sss", "sss")


@pytest.fixture(scope="module")
def better(tmp_path_factory):
    return written(tmp_path_factory.mktemp("better") / "run", alpha=BETTER)


def test_gate_compares_figures_of_cells_in_pairs(run, better):
    found = judged("pass@3[model=alpha]>=-0.1", better, run).figure
    # No figure counts the cell with an unanswered repetition.
    assert (found.base, found.new, found.n) == (0.8, 1.0, 5)
    assert found.interval.low < 0.2 < found.interval.high
    assert found.left_out.startswith("1 of 6 cells left out")
    assert judged("majority[model=beta]>=-0.1", better, run).verdict == "pass"
    relative = judged("pass@3[model=alpha]>=-10%", better, run)
    assert relative.figure.value == pytest.approx(0.25)


def test_comparison_lists_figures_of_cells_and_their_n(run, better):
    (comparison,) = compare_runs(run, [better])
    looks = {(look.model, look.figure): look for look in comparison.looks}
    assert {figure for model, figure in looks if model == "alpha"} == {
        "solved_rate",
        "pass@3",
        "pass^3",
        "majority",
    }
    look = looks["alpha", "pass@3"]
    assert (look.base, look.new, look.n) == (0.8, 1.0, 5)
    found = judged("pass@3[model=alpha]>=-0.1", better, run)
    assert (look.low, look.high) == found.figure.interval
    text = "\n".join(text_lines(comparison_sections(run, [comparison])))
    assert "n counts cells" in text
    assert "pass^3" in text


def test_change_of_a_rate_allows_for_repetitions_in_all_tables(tmp_path):
    """Half of 20 cells got worse in all ten repetitions: n is 20 cells, not 200 cases."""
    worse = ["s" * 10] * 10 + ["u" * 10] * 10
    runs = []
    for name, cells in (("base", ["s" * 10] * 20), ("new", worse)):
        path = write_run(tmp_path / name, {"alpha": outcomes(cells)}, repeats=10)
        runs.append(find_measured_run(str(path)))
    base, new = runs
    found = judged("solved_rate>=-0.35", new, base)
    assert found.verdict == "undecided"
    (comparison,) = compare_runs(base, [new])
    (look,) = (look for look in comparison.looks if look.figure == "solved_rate")
    assert (look.low, look.high) == pytest.approx(found.figure.interval)
    assert look.high - look.low > 0.4
    of_answers = equivalence(read_rows(base).values(), read_rows(new).values()).looks[0]
    assert of_answers.high - of_answers.low > 0.4
    assert judged("changed<=0.4", new, base).verdict == "undecided"


def test_figure_without_a_cell_fails_the_rule(tmp_path):
    run = written(tmp_path / "run", alpha=("sui", "sii"), beta=("uii", "iis"))
    found = judged("pass@3>=0.1", run)
    assert (found.verdict, found.note) == (
        "no figure",
        "no selected cell has 3 graded repetitions",
    )
    found = judged("majority[model=beta]>=0.1", run)
    assert "no selected cell has more than half" in found.note
