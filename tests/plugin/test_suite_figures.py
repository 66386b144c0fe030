"""Figures that a suite computes from all rows: the places that show them, and invalid figures."""

from __future__ import annotations

import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.analysis.run_summary import read_summary
from tests.plugin.conftest import CANARY, cases, said_by

WORDS = ["ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen"]
BODY = cases(
    [f"say {word}" for word in WORDS],
    'grade(answer in "ant cow elk gnu", length=len(answer) / 3)',
)
HOOK = """
def share(rows):
    return sum(row["outcome"] == "solved" for row in rows) / len(rows)

def pytest_ultrapar_figures(rows):
    mean = sum(row["score.length"] for row in rows) / len(rows)
    return {"share": share, "n": len(rows), "length": (mean, 0.5, 1.5)}
"""


def figures(directory):
    return {one.name: (one.value, one.interval) for one in read_summary(directory).figures}


@pytest.mark.cpu_s(3)
def test_figures_are_in_all_reports_of_a_run_and_in_its_gate(project, workers, capsys):
    project.suite(BODY)
    project.pytester.makeconftest(HOOK)
    rules = ("figure.share>=0.4", "figure.n>=8", "figure.length>=1.6")
    options = [f"--ultrapar-gate={rule}" for rule in rules]
    done = project.run(workers, "--ultrapar-report=html", *options)
    said = said_by(done, 1)
    found = figures(project.directory)
    assert (found["n"], found["length"]) == ((8.0, None), (1.0, (0.5, 1.5)))
    share, (low, high) = found["share"]
    assert share == 0.5
    assert 0 < low < 0.5 < high < 1
    assert f"share 0.5 ({low:.4g} to {high:.4g})\nn 8\nlength 1 (0.5 to 1.5)\n" in said
    done.stdout.fnmatch_lines_random(
        ["*figure.share>=0.4*undecided*", "*figure.n>=8*pass*", "*figure.length>=1.6*FAIL*"]
    )
    page = (project.directory / "report.html").read_text(encoding="utf-8")
    assert "length 1 (0.5 to 1.5)" in (project.directory / "report.md").read_text()
    assert "length 1 (0.5 to 1.5)" in page

    first = str(project.directory.resolve())
    project.suite(BODY.replace("elk gnu", "elk"))
    assert project.run("-n0", "--ultrapar-regrade=latest").ret == 0
    assert figures(project.directory)["share"][0] == 0.375
    assert cli.main(["compare", first, str(project.directory)]) == 0
    assert "figure.share" in capsys.readouterr().out
    assert cli.main(["gate", first, "--rule", "figure.shares>=0.1"]) == 4
    assert "has no figure shares; did you mean share?" in capsys.readouterr().err


@pytest.mark.slow
def test_invalid_figures_fail_the_run_and_lose_nothing(project):
    project.suite(BODY)
    project.pytester.makeconftest(
        HOOK
        + """
def pytest_ultrapar_figures(rows):
    def missing(rows): return rows[0]["label.answer"]
    return {"n": 8, "nan": float("nan"), "two": (1, 2), "a b": 1, "missing": missing}
"""
    )
    project.pytester.path.joinpath("other.py").write_text(
        "def pytest_ultrapar_figures(config): return {}[config.rootpath.name]"
    )
    project.pytester.syspathinsert()
    done = project.run_apart("-n0", "-p", "other")
    said = said_by(done, 1)
    done.stdout.fnmatch_lines(
        [
            "FAILED: pytest_ultrapar_figures (*other.py:1) raised KeyError: *",
            "FAILED: pytest_ultrapar_figures (*conftest.py:*): figure 'nan' is nan: a *",
            "FAILED: *: figure 'two' is (1, 2): a figure is a finite number, (value, *",
            "FAILED: *: figure 'a b' needs another name: a string *",
            "FAILED: *: figure 'missing' raised KeyError: 'label.answer'",
        ],
        consecutive=False,
    )
    assert "n 8" in said
    assert figures(project.directory) == {"n": (8.0, None)}
    assert len(project.rows()) == 8


TWO = cases(["say ant", "say bee"], "grade(answer == 'ant')")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return [1, 2]", "returned [1, 2]: it must be a dict of figures by name; a figure is a"),
        ("return 'f1'", "returned 'f1': it must be a dict of figures by name; a figure is a"),
        ("import pytest; pytest.skip('none')", "raised Skipped: none"),
        ("import pytest; pytest.fail('none')", "raised Failed: none"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("return {'f': '3'}", ": figure 'f' is '3': a figure is a finite number, (value, low"),
        ("return {'f': (5, 7, 3)}", ": figure 'f' is (5, 7, 3): a figure is a finite number"),
        ("return {1: 2}", ": figure 1 needs another name: a string of 1 to 100 characters"),
        ("import os; raise ValueError(os.environ['TEST_KEY_0'])", "raised ValueError: ***"),
        ("import os; return [os.environ['TEST_KEY_0']]", "returned ['***']: it must be"),
        ("rows[0]['n'] = 1", "raised TypeError: 'mappingproxy' object does not support item"),
    ],
)
def test_hook_with_an_invalid_result_is_one_sentence_and_results_are_written(project, body, said):
    project.suite(TWO)
    project.pytester.makeconftest(f"def pytest_ultrapar_figures(rows): {body}")
    shown = project.run("-n0").stdout.str()
    (line,) = [one for one in shown.splitlines() if one.startswith("FAILED: ")]
    assert line.startswith("FAILED: pytest_ultrapar_figures (")
    assert f"conftest.py:1){'' if said.startswith(':') else ' '}{said}" in line
    assert CANARY not in shown
    assert "Traceback" not in shown
    assert sorted(row["outcome"] for row in project.rows()) == ["solved", "unsolved"]


def test_functions_cannot_change_each_others_rows_and_removed_figures_disappear(project):
    project.suite(TWO)
    hook = """
def pytest_ultrapar_figures(rows):
    def emptied(rows):
        rows.clear()
        return 0
    def n(rows): return len(rows)
    rows.pop()
    return {"emptied": emptied, "n": n}
"""
    project.pytester.makeconftest(hook)
    said_by(project.run("-n0"), 0)
    assert {name: value for name, (value, _) in figures(project.directory).items()} == {
        "emptied": 0.0,
        "n": 2.0,
    }
    project.pytester.makeconftest("")
    said_by(project.run("-n0", "--ultrapar-resume=latest"), 0)
    assert figures(project.directory) == {}


@pytest.mark.slow
def test_figures_of_a_merged_run_are_computed_from_all_rows(project, capsys, monkeypatch):
    project.suite(BODY)
    project.pytester.makeconftest(HOOK)
    for name, chosen in (("a", "ant or bee"), ("b", "not (ant or bee)")):
        assert project.run_apart("-n0", f"--ultrapar-out={name}", "-k", chosen).ret == 0
    parts = [str(project.pytester.path / name) for name in "ab"]
    assert figures(project.pytester.path / "a")["n"][0] < 8
    out = project.pytester.path / "whole"
    assert cli.main(["merge", *parts, "--out", str(out)]) == 0
    assert figures(out)["n"] == (8.0, None)
    assert "share 0.5" in capsys.readouterr().out
    elsewhere = project.pytester.mkdir("elsewhere")
    monkeypatch.chdir(elsewhere)
    assert cli.main(["merge", *parts, "--out", "whole"]) == 1
    assert (
        "FAILED: the merged run lacks figures that its parts have (length, n, share): no "
        "pytest_ultrapar_figures in this folder computes them"
    ) in capsys.readouterr().out
