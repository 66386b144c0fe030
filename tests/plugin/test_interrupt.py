"""Ctrl-C during a run: exit code 2, finished episodes are stored, no process remains."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from pytest_ultrapar.records import EpisodeEnded, EpisodeStarted, Grade
from pytest_ultrapar.session import internals
from pytest_ultrapar.store.journal_history import read_history
from tests.journals import find_finished, scan_journal
from tests.plugin.conftest import cases
from tests.running import Running, wait_until

SUITE = """
FAST = ["say one", "say two", "say three"]

@pytest.mark.parametrize("prompt", FAST + [f"slow 60 {n}" for n in range(6)])
def test_it(answer): pass
"""


@pytest.fixture
def start(project):
    with ExitStack() as stack:

        def run(*options: str) -> Running:
            return stack.enter_context(Running(project.pytester.path, *options))

        yield run


def grades(project) -> set[str]:
    records = (record for _, record in scan_journal(project.directory / "journal"))
    return {record.case_id for record in records if isinstance(record, Grade)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "whom"), [("-n0", "group"), ("-n2", "group"), ("-n2", "process")]
)
def test_interrupted_run_keeps_finished_episodes(project, start, workers, whom):
    project.suite(SUITE)
    running = start(workers)
    assert project.server.wait_for(lambda prompts: sum(p.startswith("slow") for p in prompts) == 4)
    # A worker holds one finished item back until it knows the next.
    n_reported = 2 if workers == "-n0" else 1
    wait_until(lambda: len(grades(project)) >= n_reported)
    running.note_family()
    running.interrupt(whom)
    code, output = running.wait()
    assert code == 2, output
    assert running.left_behind() == []
    assert "Traceback" not in output, output
    assert "INTERNALERROR" not in output, output
    assert "KeyboardInterrupt" in output
    assert "stopped early:" in output
    assert f"--ultrapar-resume {project.directory.resolve().name}" in output
    assert "FAILED: " not in output

    records = [record for _, record in scan_journal(project.directory / "journal")]
    finished = [r for r in records if isinstance(r, EpisodeEnded) and r.ending == "returned"]
    interrupted = [r for r in records if isinstance(r, EpisodeEnded) and r.ending == "interrupted"]
    graded = grades(project)
    assert len(finished) == 3
    assert sum(isinstance(r, EpisodeStarted) for r in records) == len(finished) + len(interrupted)
    # The worker that stops last may use the other's seats until it stops, too.
    assert len(interrupted) == 4 if workers == "-n0" else 4 <= len(interrupted) <= 6
    assert graded <= {record.case_id for record in finished}
    assert len(graded) >= n_reported
    begun = {record.case_id for record in [*finished, *interrupted]}
    n_open = len(begun - {record.case_id for record in finished})
    assert f"; {n_open} interrupted cases will be sent again; continue with" in output
    assert ("finished and will be graded on resume" in output) == (len(graded) < len(finished))
    solved = [row for row in project.rows() if row["outcome"] == "solved"]
    assert {row["case_id"] for row in solved} == graded
    # Some requests were cancelled before they were sent.
    assert 7 <= len(project.server.prompts) <= len(finished) + len(interrupted)


@pytest.mark.slow
def test_run_stopped_by_failures_prints_the_command_that_finishes_it(project):
    project.suite(cases(20, 'assert answer == "another"'))
    # A stored answer fails again: with -x the run would never end.
    same = "the same command (without -x or --maxfail)"
    stopped = project.run("-n0", "-x", "--ultrapar-out", "runs/cut")
    stopped.stdout.fnmatch_lines(
        [f"*continue with {same} and --ultrapar-resume runs/cut instead of --ultrapar-out"]
    )
    again = project.run("-n0", "-x", "--ultrapar-resume", "runs/cut")
    again.stdout.fnmatch_lines(["ultrapar: resuming *", f"*; continue with {same}"])
    ended = project.run("-n0", "--ultrapar-resume", "runs/cut")
    ended.assert_outcomes(failed=20)
    ended.stdout.no_fnmatch_line("*stopped early*")


AGAIN = """
import os, signal, pytest

@pytest.hookimpl(tryfirst=True)
def HOOK:
    # The user's second and third Ctrl-C, in every process of the run.
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
"""
HOOKS = {
    "pytest_keyboard_interrupt": "pytest_keyboard_interrupt()",
    "pytest_sessionfinish": "pytest_sessionfinish()",
    "pytest_ultrapar_finish": "pytest_ultrapar_finish()",
    "pytest_terminal_summary": "pytest_terminal_summary()",
    "pytest_unconfigure": "pytest_unconfigure()",
}


def interrupt_again(project, start, workers: str, conftest: str) -> str:
    """Interrupt a run, let its conftest interrupt it again, and resume it; return the output."""
    project.suite(SUITE.replace("slow 60", "later").replace("range(6)", "range(4)"))
    project.write_pool(timeout_s=60)
    project.pytester.path.joinpath("conftest.py").write_text(conftest)
    running = start(workers)
    assert project.server.wait_for(lambda prompts: sum(p.startswith("later") for p in prompts) == 4)
    wait_until(lambda: bool(grades(project)))
    running.note_family()
    running.interrupt("group")
    code, output = running.wait()
    assert code == 2, output
    assert "Traceback" not in output, output
    assert running.left_behind() == []
    finished = set(find_finished(read_history(project.directory / "journal")))
    assert len(finished) == 3
    project.pytester.path.joinpath("conftest.py").unlink()
    assert project.run("-n0", "--ultrapar-resume", "latest").ret == 0
    rows = project.rows()
    assert [row["outcome"] for row in rows] == ["solved"] * 7
    asked = Counter(project.server.prompts)
    assert {asked[row["param.prompt"]] for row in rows if row["case_id"] in finished} == {1}
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "hook"), [*(("-n0", hook) for hook in HOOKS), ("-n2", "pytest_unconfigure")]
)
def test_ctrl_c_again_ends_without_a_traceback_and_loses_nothing(project, start, workers, hook):
    interrupt_again(project, start, workers, AGAIN.replace("HOOK", HOOKS[hook]))


@pytest.mark.slow
def test_later_ctrl_c_ends_immediately_and_loses_nothing(project, start, workers):
    conftest = AGAIN.replace("HOOK", HOOKS["pytest_sessionfinish"])
    later = "from pytest_ultrapar.session import ctrl_c\n\nctrl_c.SAME_WISH_S = 0.0\n"
    output = interrupt_again(project, start, workers, conftest + later)
    assert "ended before all results were written; no finished episode is lost" in output


AT_THE_END = """
import os, pathlib, signal, time, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    pathlib.Path("ending").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.slow
def test_first_ctrl_c_after_the_last_test_ends_immediately_and_loses_nothing(
    project, start, workers
):
    project.suite(cases(["say one", "say two", "say three"]))
    project.pytester.path.joinpath("conftest.py").write_text(AT_THE_END)
    running = start(workers)
    wait_until(project.pytester.path.joinpath("ending").exists)
    running.note_family()
    project.pytester.path.joinpath("go").touch()
    code, output = running.wait()
    assert code == 2, output
    assert "Traceback" not in output, output
    assert "continue with the same command and --ultrapar-resume" in output
    assert running.left_behind() == []
    project.pytester.path.joinpath("conftest.py").unlink()
    assert project.run("-n0", "--ultrapar-resume", "latest").ret == 0
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 3
    assert len(project.server.prompts) == 3


def test_interrupt_before_the_first_line_of_a_function_is_reported_as_usual():
    def unplaced():
        raise KeyboardInterrupt

    unplaced.__code__ = unplaced.__code__.replace(co_linetable=b"")
    with pytest.raises(KeyboardInterrupt) as caught:
        unplaced()
    with pytest.raises(TypeError):
        caught.getrepr(funcargs=True)
    internals.drop_frames_without_line(caught)
    assert "KeyboardInterrupt" in str(caught.getrepr(funcargs=True))
