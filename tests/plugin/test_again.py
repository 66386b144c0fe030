"""Cases selected by their earlier outcome: `--ultrapar-only`, and pytest's `--lf` and `--ff`."""

from __future__ import annotations

import shlex

import pytest

from pytest_ultrapar.cli import main
from tests.plugin.conftest import said_by

BODY = """
PROMPTS = ["say right", "say wrong", "say half", "status 500 down", "say raised", "say failed"]

@pytest.mark.parametrize("prompt", PROMPTS)
def test_it(answer, prompt, grade):
    if answer in {"half", "wrong"}:
        grade("partial" if answer == "half" else "unsolved")
    if answer == "raised":
        raise LookupError
    if answer == "failed":
        grade("solved")
        pytest.fail("by hand")

@pytest.mark.xfail
@pytest.mark.parametrize("prompt", ["say expected"])
def test_expected(answer): assert not answer

def test_plain(): pass
"""
FIRST = ("-n0", "--ultrapar-max-attempts=1", "--ultrapar-coverage=0")
NOT_GREEN = ["say wrong", "say half", "status 500 down", "say raised", "say failed"]


def asked(project, *options):
    """The prompts that a run sends, in the order of the suite."""
    before = len(project.server.prompts)
    result = project.run(*FIRST, *options)
    said_by(result, 0, 1)
    order = [*NOT_GREEN, "say right", "say expected"]
    return sorted(project.server.prompts[before:], key=order.index), result


@pytest.mark.parametrize(
    ("words", "prompts"),
    [
        ("unsolved", ["say wrong", "say expected"]),
        ("infra,partial", ["say half", "status 500 down"]),
        ("error", ["say raised"]),
        ("failed", ["say raised", "say failed"]),
    ],
)
def test_only_selects_cases_by_their_earlier_outcome(project, words, prompts):
    project.suite(BODY)
    asked(project)
    again, result = asked(project, f"--ultrapar-only={words}")
    assert again == prompts
    assert len(project.rows()) == len(prompts)
    result.stdout.fnmatch_lines([f"*only cases that ended as * in run 2*: {len(prompts)} case*"])


@pytest.mark.cpu_s(4)
def test_workers_select_the_same_cases_of_the_named_run(project):
    project.suite(BODY)
    asked(project)
    first = project.directory.resolve().name
    asked(project, "-k", "right")
    named = ("--ultrapar-only=unsolved, error", f"--ultrapar-only-of={first}", "-n2")
    assert asked(project, *named)[0] == ["say wrong", "say raised", "say expected"]
    # With another seed, cases have other ids: the ids of the named run count.
    assert asked(project, *named, "-n0", "--ultrapar-seed=7")[0][0] == "say wrong"


@pytest.mark.cpu_s(3)
def test_interrupted_run_of_selected_cases_is_resumed_with_the_same_cases(project):
    project.suite(BODY)
    asked(project)
    options = ("--ultrapar-only=unsolved",)
    path = project.pytester.path / "conftest.py"
    path.write_text("import pytest\ndef pytest_runtest_teardown(): pytest.exit('now', 2)")
    project.run(*FIRST, *options)
    path.unlink()
    resumed = project.run(*FIRST, *options, "--ultrapar-resume=latest")
    said_by(resumed, 0)
    assert sorted(row["nodeid"].split("-")[1] for row in project.rows()) == [
        "say expected",
        "say wrong",
    ]


def test_run_without_selected_cases_reports_it(project):
    project.suite(BODY)
    project.run(*FIRST, "-k", "right")
    said = said_by(project.run(*FIRST, "--ultrapar-only=infra,error"), 5)
    assert "0 cases" in said


def test_whole_run_is_not_resumed_with_selected_cases(project):
    project.suite(BODY)
    asked(project)
    said = said_by(project.run(*FIRST, "--ultrapar-resume=latest", "--ultrapar-only=unsolved"), 4)
    assert (
        "--ultrapar-only: leave out this option, because the resumed run was started without it"
        in said
    )


def test_comparison_reports_that_cases_were_selected_by_outcome(project, capsys):
    project.suite(BODY)
    asked(project, "--ultrapar-out=whole")
    asked(project, "--ultrapar-out=again", "--ultrapar-only=unsolved,partial",
          "--ultrapar-only-of=whole")  # fmt: skip
    note = "the new run contains only cases that ended as unsolved,partial in an earlier run"
    for command in (["compare", "whole", "again"], ["gate", "again", "--baseline", "whole"]):
        capsys.readouterr()
        main(command)
        assert note in " ".join(capsys.readouterr().out.split())
    main(["gate", "again", "--rule", "solved_rate>=0"])
    assert note.replace("new ", "") in capsys.readouterr().out


def test_comparison_reports_that_a_run_has_only_last_failed_cases(project, capsys):
    project.suite(BODY)
    project.run("-pcacheprovider", *FIRST, "--ultrapar-out=whole")
    project.run("-pcacheprovider", *FIRST, "--ultrapar-out=again", "--lf")
    capsys.readouterr()
    main(["compare", "whole", "again"])
    said = " ".join(capsys.readouterr().out.split())
    assert "the new run used --lf, which selects cases that failed before" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ultrapar-only=wrong"], "--ultrapar-only takes one or more of unsolved, partial, "
         "infra, error, failed, separated by commas (got 'wrong')"),
        (["--ultrapar-only=infra"], "--ultrapar-only: no run found at .ultrapar/latest"),
        (["--ultrapar-only-of=latest"], "--ultrapar-only-of latest needs --ultrapar-only"),
    ],
)  # fmt: skip
def test_unusable_selection_is_refused(project, options, said):
    project.suite(BODY)
    assert said in project.refusal(project.run("-n0", *options))


@pytest.mark.cpu_s(3)
def test_last_failed_of_pytest_selects_all_cases_that_did_not_pass(project, workers):
    project.suite(BODY)
    cache = ("-p", "cacheprovider", workers)
    asked(project, *cache)
    assert asked(project, *cache, "--lf")[0] == NOT_GREEN
    project.suite(BODY.replace('{"half", "wrong"}', "()"))
    assert asked(project, *cache, "--lf")[0] == NOT_GREEN
    assert asked(project, *cache, "--lf")[0] == NOT_GREEN[2:]
    every, first = asked(project, *cache, "--ff", "-v")
    assert len(every) == len(NOT_GREEN) + 2
    if workers == "-n0":  # workers, which collect, print nothing
        first.stdout.fnmatch_lines(["*rerun previous 3 failures first*"])


SEATS = "of 40 workers are busy"


@pytest.mark.parametrize(
    ("options", "is_said"),
    [
        ((), True),
        (("-k", "right or wrong"), False),
        (("test_suite.py::test_it[m-say right-r0]",), False),
    ],
)
def test_run_of_picked_cases_gets_no_hint_about_seats(project, options, is_said):
    project.suite(BODY)
    project.write_pool(seats=40, key=", qps = 10")
    said = said_by(project.run(*FIRST, *options), 0, 1)
    assert (SEATS in said) == is_said


def test_command_printed_by_show_runs_that_case(project, monkeypatch, capsys):
    from pytest_ultrapar.cli import main

    project.suite(BODY)
    project.run(*FIRST)
    assert main(["show", "latest", "say wrong"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if "run again" in one]
    _, *what = shlex.split(line.partition("pytest ")[2])
    assert what == ["test_suite.py::test_it[m-say wrong-r0]"]
    assert asked(project, *what)[0] == ["say wrong"]


def test_quiet_run_also_reports_that_no_case_ended_with_the_outcome(project, workers):
    project.suite('\n@pytest.mark.parametrize("prompt", ["say a"])\ndef test_it(answer): ...\n')
    said_by(project.run("-n0"), 0)
    result = project.run(workers, "-q", "--ultrapar-only=unsolved")
    assert (
        f"ultrapar: no selected case ended as unsolved in run {project.directory.resolve().name}"
        in (said_by(result, 5))
    )
