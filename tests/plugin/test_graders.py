"""Graders in their own processes: their results, and the reasons for which they end."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.plugin.conftest import CANARY

SUITE = """
import os, subprocess, sys, time
from contextlib import suppress
from pytest_ultrapar import grader

def scribble():
    for descriptor in range(3, 60):
        with suppress(OSError):
            os.write(descriptor, b"not the grader's")
    while True:
        pass

@grader(jobs=2, timeout_s=LIMIT, memory_mb=200)
def passes(answer, prompt, model):
    assert model == "m"
    assert prompt.startswith("say ")
    space = {"scribble": scribble}
    exec(answer.replace(";", "\\n"), space)
    return space.get("x"), os.getpid()

@pytest.mark.parametrize("prompt", PROMPTS)
def test_it(passes, grade):
    x, pid = passes
    assert pid != os.getpid()
    grade(x == 2, x=x)
"""
PROGRAMS = {
    "x=2": ("solved", None, None),
    "x=3": ("unsolved", None, None),
    "assert 1>2, 'no'": ("unsolved", None, "grader passes failed: no"),
    "while True: pass": ("unsolved", "time_limit", "grader passes took longer than 2 s"),
    "os._exit(3)": ("unsolved", "died", "grader passes died: exit code 3"),
    "os.abort()": ("unsolved", "died", "grader passes died: SIGABRT"),
    "sys.exit(1)": ("unsolved", "died", "grader passes died: exit code 1"),
    "x='a'*10**9": ("unsolved", "memory_limit", "grader passes used more memory than 200 MiB"),
    "scribble()": ("unsolved", "died", "grader passes died: SIGKILL"),
    "1/0": ("error", "ZeroDivisionError: division by zero", None),
}


def suite(*programs: str, limit: float = 2) -> str:
    prompts = [f"say import os, sys;{program}" for program in programs]
    return SUITE.replace("PROMPTS", repr(prompts)).replace("LIMIT", str(limit))


@pytest.mark.cpu_s(5)
def test_result_or_error_of_a_grader_belongs_to_its_case(project):
    project.suite(suite(*PROGRAMS))
    done = project.run("-n0")
    assert done.ret == 1
    found = {row["param.prompt"].split(";")[1]: row for row in project.rows()}
    for program, (outcome, kind, reason) in PROGRAMS.items():
        row = found[program]
        assert row["outcome"] == outcome, row
        if outcome == "error":
            assert row["error"] == kind
        else:
            assert (row["kind"], row["reason"]) == (kind, reason)
    assert "grading_process" not in done.stdout.str()
    assert not any(one.stat().st_mode & 0o077 for one in project.directory.iterdir())


@pytest.mark.slow
def test_graders_are_shared_by_workers_and_regrade_runs_them_again(project):
    programs = ["x=2", "x=3", "while True: pass", "os._exit(3)"] * 5
    project.suite(suite(*(f"{program};# {n}" for n, program in enumerate(programs)), limit=1))
    assert project.run_apart("-n2").ret == 0
    assert sum(project.kinds().values()) == 20
    assert project.kinds()["unsolved", "time_limit"] == 5
    before = {row["case_id"]: row["outcome"] for row in project.rows()}
    asked = len(project.server.prompts)

    path = Path(project.pytester.path, "test_suite.py")
    path.write_text(path.read_text().replace("x == 2", "x == 3"))
    assert project.run_apart("-n2", "--ultrapar-regrade", "latest").ret == 0
    assert len(project.server.prompts) == asked
    after = {row["case_id"]: row["outcome"] for row in project.rows()}
    assert sum(after[case] != before[case] for case in before) == 10
    assert project.kinds()["unsolved", "time_limit"] == 5


@pytest.mark.slow
def test_test_waits_for_its_grader_without_delaying_requests_of_other_cases(project):
    # Four seats, two jobs, ten cases of half a second: all are sent long before all are graded.
    project.suite(
        suite(*(f"import time;time.sleep(0.2);x=2;# {n}" for n in range(10)))
        + """
import time
def test_plain():
    pass
"""
    )
    assert project.run("-n0").ret == 0
    ends = [row["ended_at"] for row in project.rows()]
    assert (max(ends) - min(ends)).total_seconds() < 0.8  # one after the other: 1 s at least


@pytest.mark.slow
def test_graded_program_sees_no_key_and_leaves_no_process(project):
    project.suite(
        suite(
            "import subprocess;p=subprocess.Popen(['sleep','1234.5']);x=2",
            "import subprocess;p=subprocess.Popen(['sleep','1234.5']);p.wait()",
            f"x=2 if not any({CANARY!r} in one for one in os.environ.values()) else 3",
            limit=1,
        )
    )
    assert project.run("-n0").ret == 0
    assert project.kinds() == {("solved", None): 2, ("unsolved", "time_limit"): 1}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert b"1234.5" not in process.read_bytes()


@pytest.mark.slow
def test_program_that_kills_its_job_costs_no_other_case(project):
    project.suite(suite("os.kill(os.getppid(), 9)", "x=2", "x=3"))
    project.run("-n0", "--ultrapar-coverage", "0")
    rows = {row["param.prompt"].split(";")[1]: row for row in project.rows()}
    lost = rows["os.kill(os.getppid(), 9)"]
    assert (lost["outcome"], lost["error"]) == ("error", "the grader killed its parent")
    assert [rows[one]["outcome"] for one in ("x=2", "x=3")] == ["solved", "unsolved"]


KILLS = """
import signal, sys
from pathlib import Path

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def kill_main_and_job():
    job = os.getppid()
    os.kill(parent(job), signal.SIGKILL)
    os.kill(job, signal.SIGKILL)

def once(name):
    try:
        Path(__file__).with_name(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

if "pytest_ultrapar.session.grading_process" in sys.orig_argv and once("at its start"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_killed_processes_of_a_grader_are_started_again(project, workers):
    project.suite(
        suite(
            "from test_suite import *;once('once') and kill_main_and_job();x=2",
            "from test_suite import *;kill_main_and_job()",
            *(f"x=2;# {n}" for n in range(8)),
        )
        + KILLS
    )
    project.run_apart(workers, "--ultrapar-coverage", "0")
    assert sorted(project.outcomes().values()) == ["error", *["solved"] * 9]
    (lost,) = [row for row in project.rows() if row["outcome"] == "error"]
    assert lost["error"] == "the grader's process ended without a result: SIGKILL"


@pytest.mark.slow
def test_grader_whose_module_fails_in_its_process_reports_the_reason(project):
    project.suite(
        suite("x=2", "x=3") + "\nassert 'grading_process' not in str(sys.orig_argv), 'no'"
    )
    project.run("-n0", "--ultrapar-coverage", "0")
    errors = {row["error"] for row in project.rows()}
    assert errors == {"the grader's process ended without a result: AssertionError: no"}


@pytest.mark.parametrize(
    ("grader", "said"),
    [
        (
            "def made():\n    @grader\n    def passes(answer): pass\n    return passes\n"
            "passes = made()",
            "grader 'passes' cannot be pickled, so it cannot run in another process",
        ),
        ("passes = grader(lambda answer: True)", "grader '<lambda>' cannot be pickled"),
        ("@grader\nasync def passes(answer): pass", "grader 'passes' cannot be pickled"),
        (
            "@grader(jobs=0)\ndef passes(answer): pass",
            "grader 'passes' has jobs=0; jobs must be a whole number above 0",
        ),
        (
            "@grader(jobs=1.5)\ndef passes(answer): pass",
            "has jobs=1.5; jobs must be a whole number",
        ),
        ("@grader(jobs=True)\ndef passes(answer): pass", "has jobs=True; jobs must be a whole"),
        (
            "@grader(timeout_s=True)\ndef passes(answer): pass",
            "has timeout_s=True; timeout_s must be a n",
        ),
        (
            "@grader(timeout_s=float('nan'))\ndef passes(answer): pass",
            "has timeout_s=nan; timeout_s must be a number above 0",
        ),
        (
            "@grader(memory_mb=False)\ndef passes(answer): pass",
            "has memory_mb=False; memory_mb must be",
        ),
        (
            "@grader(memory_mb='1 GB')\ndef passes(answer): pass",
            "has memory_mb='1 GB'; memory_mb must be",
        ),
        (
            "@grader(timeout_s=-1)\ndef passes(answer): pass",
            "has timeout_s=-1; timeout_s must be a number above 0",
        ),
        (
            "@grader\ndef passes(answer, tmp_path): pass",
            "grader 'passes' has an argument 'tmp_path'; allowed: the test's prefetched "
            "fixture, parametrised values and model",
        ),
    ],
)
def test_unusable_grader_is_refused_in_one_sentence(project, grader, said):
    project.suite(f"""
from pytest_ultrapar import grader
{grader}
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(passes): pass
""")
    assert said in project.refusal(project.run("-n0"))


@pytest.mark.slow
def test_argument_that_cannot_be_pickled_is_an_error_of_its_case(project):
    project.suite("""
from pytest_ultrapar import grader

@grader
def passes(answer, check):
    return check(answer)

@pytest.mark.parametrize("check", [lambda text: True])
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(passes): pass
""")
    project.run("-n0")
    (row,) = project.rows()
    assert row["outcome"] == "error"
    assert row["error"].startswith("an argument of the grader cannot be pickled: ")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_grader_knows_the_classes_of_its_module_in_each_import_mode(project, mode):
    project.pytester.makeconftest("""
from pytest_ultrapar import grader

@grader
def of_conftest(answer):
    return answer
""")
    folder = project.pytester.mkdir("evals")
    project.suite(
        """
from pytest_ultrapar import grader

class Level:
    def __init__(self, n):
        self.n = n

@grader
def higher(answer, level):
    return Level(level.n + 1)

@pytest.mark.parametrize("level", [Level(3)])
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(higher, of_conftest):
    assert type(higher) is Level
    assert (higher.n, of_conftest) == (4, "a")
""",
        str(folder / "test_levels.py"),
    )
    assert project.run("-n0", f"--import-mode={mode}").ret == 0


@pytest.mark.slow
def test_run_that_ends_early_leaves_no_grader_behind(project):
    project.suite(suite("x=0", "x=0;# 2", "while True: pass", limit=1000))
    path = Path(project.pytester.path, "test_suite.py")
    path.write_text(path.read_text().replace("grade(x == 2, x=x)", "assert x"))
    assert project.run("-n0", "-x").ret == 1
    ours = f"ULTRAPAR_PARENT_PID={os.getpid()}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if ours in (process / "environ").read_bytes():
                assert b"grading_process" not in (process / "cmdline").read_bytes()
