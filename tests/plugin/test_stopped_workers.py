"""Workers that stop without dying: whole runs with xdist in which one worker stops once."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

CONFTEST = """
import os, pathlib, signal, subprocess, sys, threading
import pytest
from pytest_ultrapar.coordinator import worker_watch

worker_watch.GRACE_S = 4.0  # and --ultrapar-episode-timeout 4: workers may be silent for 8 s
WORKER = os.environ.get("PYTEST_XDIST_WORKER")

def first(name):
    try:
        pathlib.Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def stop_process():
    os.kill(os.getpid(), signal.SIGSTOP)

def block_thread():
    threading.Event().wait()

def take_long():
    threading.Event().wait(12)
"""
SUITE = """
from conftest import *
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, number) -> str:
    reply = await llm.chat([{"role": "user", "content": f"say {number}"}])
    if number == 7 and first("in_episode"):
        EPISODE
    return reply.text

@pytest.mark.parametrize("number", range(16))
def test_it(answer, number):
    if number == 7 and first("in_test"):
        BODY
    assert answer == str(number)
"""


def run(
    project, *options: str, conftest: str = "", episode: str = "pass", body: str = "pass"
) -> str:
    folder = project.pytester.path
    folder.joinpath("conftest.py").write_text(CONFTEST + conftest)
    folder.joinpath("test_suite.py").write_text(
        SUITE.replace("EPISODE", episode).replace("BODY", body)
    )
    result = project.run_apart("-n2", "--ultrapar-episode-timeout", "4", *options)
    output = str(result.stdout)
    assert result.ret == 0, output
    assert len(project.rows()) == 16
    return output


@pytest.mark.parametrize(
    "where",
    [
        {"episode": "stop_process()", "body": "stop_process()"},
        {"episode": "block_thread()"},
        {
            "conftest": """
def pytest_collection_modifyitems():
    if WORKER == "gw1":
        stop_process()
"""
        },
    ],
    ids=["process", "engine", "collection"],
)
def test_cases_of_a_stopped_worker_run_on_other_workers(project, where):
    output = run(project, "--ultrapar-coverage=1", **where)
    assert output.count("was killed: it had been silent for 8 s") == len(where)
    assert "(--ultrapar-episode-timeout plus 4 s)" in output


def test_worker_with_a_long_test_is_not_killed(project):
    assert "was killed" not in run(project, "--ultrapar-coverage=1", body="take_long()")


SUSPENDED = """
def pytest_runtest_logfinish(nodeid):
    # As Ctrl-Z does it: the controller and its workers, but not the broker, which has its own
    # session.
    if WORKER is None and first("suspended"):
        import psutil
        itself = psutil.Process()
        # execnet starts workers with -c.
        workers = [p.pid for p in itself.children() if "-c" in p.cmdline()]
        assert len(workers) == 2
        pids = [itself.pid, *workers]
        program = f'''
import os, signal, threading
for number, wait_s in ((signal.SIGSTOP, 12), (signal.SIGCONT, 0)):
    for pid in {pids}:
        os.kill(pid, number)
    threading.Event().wait(wait_s)
'''
        subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
"""


def test_no_worker_is_killed_for_the_time_during_which_all_were_suspended(project):
    # An episode that is open meanwhile ends at its own deadline.
    output = run(project, "--ultrapar-coverage=0", conftest=SUSPENDED, body="take_long()")
    assert project.pytester.path.joinpath("suspended").exists()
    assert "was killed" not in output
