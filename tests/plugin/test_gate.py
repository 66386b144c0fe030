"""--ultrapar-gate: refused before the first request, or judged at the end of the run."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import CANARY, said_by
from tests.plugin.test_bad_input import refusal
from tests.scripted_server import refusing

N = 12
SUITE = f"""
import os

@pytest.mark.parametrize("prompt", [f"say {{number}}" for number in range({N})])
def test_it(answer, grade):
    grade(os.environ["OUTCOME"], right=float(os.environ["OUTCOME"] == "solved"))
"""


@pytest.fixture
def outcome(monkeypatch):
    """A function that sets the grade of all cases, which is solved by default."""

    def is_now(word: str) -> None:
        monkeypatch.setenv("OUTCOME", word)

    is_now("solved")
    return is_now


def gate_rows(output: str) -> dict[str, str]:
    """The verdict of each rule, from the table below the gate's heading."""
    lines = output.split("\ngate: run ")[1].splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    return {row[0]: row[1] for row in cells if len(row) > 3}


@pytest.mark.slow
def test_passed_gate_shows_its_table(project, outcome):
    project.suite(SUITE)
    result = project.run(
        "-n0", "--ultrapar-gate", "solved_rate[model=m]>=0.7", "--ultrapar-gate=coverage>=0.98"
    )
    said = result.stdout.str()
    assert result.ret == 0, said
    assert gate_rows(said) == {"solved_rate[model=m]>=0.7": "pass", "coverage>=0.98": "pass"}
    assert "FAILED" not in said
    assert CANARY not in said + result.stderr.str()


@pytest.mark.slow
def test_failed_gate_ends_with_exit_code_1(project, outcome):
    project.suite(SUITE)
    outcome("unsolved")
    result = project.run(
        "-n0", "--ultrapar-gate=solved_rate>=0.7", "--ultrapar-gate=score.right<=0.5"
    )
    said = result.stdout.str()
    assert result.ret == 1, said
    assert gate_rows(said) == {"solved_rate>=0.7": "FAIL", "score.right<=0.5": "pass"}
    assert "FAILED: gate: 1 rule failed: solved_rate>=0.7\n" in said
    assert result.parseoutcomes()["unsolved"] == N


@pytest.mark.slow
@pytest.mark.parametrize(("word", "code"), [("pass", 0), ("fail", 1)])
def test_run_reports_whether_an_undecided_rule_fails(project, outcome, word, code):
    project.suite(SUITE)
    result = project.run_here(
        "--ultrapar-gate=solved_rate>=0.9", f"--ultrapar-gate-undecided={word}"
    )
    said = result.stdout.str()
    assert result.ret == code, said
    assert gate_rows(said) == {"solved_rate>=0.9": "undecided"}
    failed = "FAILED: gate: 1 rule undecided, and undecided rules fail: solved_rate>=0.9"
    assert (failed in said) is bool(code)


@pytest.mark.slow
def test_run_is_compared_with_the_previous_run(project, outcome):
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    first = json.loads((project.directory / "manifest.json").read_text())["run_id"]
    options = ("-n0", "--ultrapar-gate-baseline=latest", "--ultrapar-gate=same_answers")

    same = project.run(*options)
    assert same.ret == 0, same.stdout.str()
    assert f" against {first}: 0 failed, 1 passed" in same.stdout.str()

    outcome("unsolved")
    other = project.run(*options)
    assert other.ret == 1
    assert gate_rows(other.stdout.str()) == {"same_answers": "FAIL"}
    assert f"{N} of {N} cases have different grades" in other.stdout.str()


@pytest.mark.slow
def test_baseline_alone_means_the_default_rules(project, outcome):
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    result = project.run("-n0", "--ultrapar-gate-baseline=latest")
    assert list(gate_rows(result.stdout.str())) == [
        "throughput>=-7%",
        "service<=+7%",
        "kept>=0.98",
        "coverage>=-0.02",
        "same_answers",
        "solved_rate[model=m]>=-0.02",
    ]


def test_gate_without_a_figure_fails_the_run(project, outcome):
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-gate=score.rihgt>=0.5")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED: cannot check the rules of *: *did you mean right?*"])


@pytest.mark.slow
def test_run_without_any_answer_fails_its_gate_without_a_traceback(project, outcome):
    project.suite(SUITE)
    project.server.weather = refusing(401, f"{CANARY}-0")
    result = project.run("-n0", "--ultrapar-gate=solved_rate>=0.5")
    said_by(result, 1)
    result.stdout.fnmatch_lines(["FAILED: cannot check the rules of *: no case in * was graded*"])


@pytest.mark.slow
def test_interrupted_run_is_not_judged(project, outcome):
    project.suite(SUITE + "\ndef test_fails(): assert False\n")
    outcome("unsolved")
    result = project.run("-n0", "-x", "--ultrapar-gate=solved_rate>=0.7")
    assert "rule failed" not in result.stdout.str()


REPEATED = """
@prefetch
async def turn(llm, case, word) -> int:
    if word == "pear" and case.repeat == 2:
        pytest.skip("not this one")
    await llm.chat([{"role": "user", "content": f"say {word} {case.repeat}"}])
    return case.repeat

@pytest.mark.parametrize("word", ["pear", "apple", "plum", "fig"])
def test_it(turn, word, grade):
    grade("solved" if word == "fig" or turn == 0 else "partial")
"""


def test_gate_treats_repetitions_as_one_measurement(project):
    project.suite(REPEATED)
    result = project.run(
        "-n0",
        "--ultrapar-repeats=3",
        "--ultrapar-gate=pass@3[model=m]>=0.9",
        "--ultrapar-gate=pass^2.point>=0.5",
        "--ultrapar-gate=majority.point<=0.25",
        "--ultrapar-gate=solved_rate.point>=0.5",
    )
    said = result.stdout.str()
    assert result.ret == 1, said
    assert gate_rows(said) == {
        "pass@3[model=m]>=0.9": "undecided",
        "pass^2.point>=0.5": "FAIL",
        "majority.point<=0.25": "pass",
        "solved_rate.point>=0.5": "pass",
    }
    project.report.fnmatch_lines(
        [
            "| pass@1 *| m *| *4 | *54.2 % | * to *",
            "| pass@3 *| m *| *3 of 4 | *100.0 % | * to *",
            "| pass^3 *| m *| *3 of 4 | *33.3 % | * to *",
            "| majority *| m *| *4 | *25.0 % | * to *",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "*1 of 4 cells left out, because they have fewer than 3 graded repetitions",
        ]
    )


def test_more_repetitions_than_planned_are_refused_before_any_request(project):
    project.suite(REPEATED)
    options = ("--ultrapar-repeats=3", "--ultrapar-gate=pass@4[word=fig]>=0.9")
    assert (
        "gate rule 'pass@4[word=fig]>=0.9': pass@4 needs 4 repetitions of a cell, but the run has 3"
        " (--ultrapar-repeats)"
    ) in refusal(project, "-n0", *options)


BAD_RULES = {
    "--ultrapar-gate=solvedrate>=0.5": "did you mean solved_rate?",
    "--ultrapar-gate=solved_rate[model=n]>=0.5": "no case has model 'n'",
    "--ultrapar-gate=solved_rate[promt=a]>=0.5": "promt is not a parameter of any case; did you",
    "--ultrapar-gate-undecided=fail": "--ultrapar-gate-undecided fail has no effect without rules",
    "--ultrapar-gate=throughput>=-10%": "it needs a baseline: specify one",
    "--ultrapar-gate-baseline=nowhere": "--ultrapar-gate-baseline: no run found at nowhere",
}


@pytest.mark.parametrize("option", BAD_RULES)
def test_unusable_gate_is_refused_before_any_request(project, outcome, option):
    project.suite(SUITE)
    assert BAD_RULES[option] in refusal(project, "-n0", option)


@pytest.mark.slow
def test_unusable_baseline_is_refused_before_any_request(project, outcome, monkeypatch):
    project.suite(SUITE)
    assert project.run("-n0", "--ultrapar-out=first").ret == 0
    project.server.reset()
    baseline = "--ultrapar-gate-baseline=first"
    assert "--ultrapar-seed=0" in refusal(project, "--ultrapar-seed=1", baseline)
    said = refusal(project, baseline, "--ultrapar-gate=score.rihgt>=-0.1")
    assert "the baseline" in said
    assert "did you mean right?" in said
    assert "is the run to resume" in refusal(project, baseline, "--ultrapar-resume=first")

    manifest = project.pytester.path / "first" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(json.dumps(json.loads(text) | {"ended_at": None}))
    assert "is not finished" in refusal(project, baseline)
    manifest.write_text(json.dumps(json.loads(text) | {"schema": 2}))
    assert "comes from a newer version: its schema is 2" in refusal(project, baseline)
    manifest.write_text(text)

    project.pytester.path.joinpath("test_suite.py").rename("test_other.py")
    assert "has no case in common with" in refusal(project, baseline)


def test_collect_only_checks_rules_and_judges_nothing(project, outcome):
    project.suite(SUITE)
    assert "is not a metric" in refusal(project, "--collect-only", "--ultrapar-gate=x>=1")
    result = project.run_here("--collect-only", "-q", "--ultrapar-gate=solved_rate>=1")
    assert result.ret == 0
    assert "gate: run" not in result.stdout.str()
