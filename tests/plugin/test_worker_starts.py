"""Workers that are killed during their start, while others are killed, too."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import cases, said_by

pytestmark = pytest.mark.slow

SUITE = cases(30)
DIES_ONCE = """
import os, pathlib

def pytest_runtest_logstart():
    died = pathlib.Path("died")
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0" and not died.exists():
        died.touch()
        os._exit(3)
"""
KILLED_WHILE_STARTING = """
KILLED = []

def killed(gateway):
    if gateway.id in {whom}:
        KILLED.append(gateway.id)
        gateway._io.popen.kill()
        gateway._io.popen.wait()

def {hook}:
    killed({gateway})
"""
HOOKS = [
    ("pytest_xdist_newgateway(gateway)", "gateway"),
    ("pytest_configure_node(node)", "node.gateway"),
]


@pytest.mark.parametrize(("hook", "gateway"), HOOKS, ids=["made", "configured"])
@pytest.mark.parametrize("whom", ['{"gw0"}', '{"gw2", "gw3"}'])
def test_worker_killed_while_it_starts_is_started_again(project, hook, gateway, whom):
    project.suite(SUITE)
    killed = KILLED_WHILE_STARTING.format(hook=hook, gateway=gateway, whom=whom)
    dies = "" if "gw0" in whom else DIES_ONCE
    project.pytester.path.joinpath("conftest.py").write_text(dies + killed)
    result = project.run("-n2")
    said_by(result, 0)
    assert list(project.outcomes().values()) == ["solved"] * 30


def test_run_ends_with_one_sentence_if_all_workers_die_while_they_start(project):
    project.suite(SUITE)
    hook, gateway = HOOKS[1]
    everybody = '{f"gw{n}" for n in range(99)}'
    killed = KILLED_WHILE_STARTING.format(hook=hook, gateway=gateway, whom=everybody)
    project.pytester.path.joinpath("conftest.py").write_text(killed)
    said = project.refusal(project.run("-n2"))
    assert "5 worker processes in a row ended during startup" in said


KILLED_BETWEEN_COLLECTIONS = """
import os, pathlib, time, pytest

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.02)

# gw0 has collected and is killed, its replacement is up, and only then gw1 has collected.
def pytest_xdist_node_collection_finished(node):
    if node.gateway.id == "gw0":
        node.gateway._io.popen.kill()

@pytest.hookimpl(tryfirst=True)
def pytest_collection():
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker == "gw1":
        wait_for("gw2-is-up")
    if worker == "gw2":
        wait_for("cases-are-fed")

def pytest_testnodeready(node):
    if node.gateway.id == "gw2":
        pathlib.Path("gw2-is-up").touch()

def pytest_ultrapar_assign():
    pathlib.Path("cases-are-fed").touch()
"""


def test_replacement_that_starts_before_the_last_worker_has_collected_loses_nothing(project):
    project.suite(SUITE)
    project.pytester.path.joinpath("conftest.py").write_text(KILLED_BETWEEN_COLLECTIONS)
    result = project.run("-n2")
    said_by(result, 0)
    assert list(project.outcomes().values()) == ["solved"] * 30
    assert len(project.server.prompts) == 30


COLLECTS_SOMETHING_ELSE = """
import os

@pytest.mark.parametrize("prompt", [f"say {n}" for n in range(30)])
def test_it(answer, grade, prompt):
    if prompt == "say 7":
        os._exit(3)
    grade("solved")

IS_LATE = os.environ.get("PYTEST_XDIST_WORKER") not in {FIRST}
OTHERS
"""
FIRST = ["gw0", "gw1", "gw2"]


OTHER_TESTS = """
if IS_LATE:
    def test_that_only_late_workers_collect(): ...
"""
OTHER_CASES = """
@pytest.mark.parametrize("prompt", [f"ask {IS_LATE}"])
def test_other(answer, grade): grade("solved")
"""


@pytest.mark.parametrize(("n_workers", "others"), [(1, OTHER_CASES), (3, OTHER_TESTS)])
def test_replacement_that_collects_other_tests_does_not_keep_a_run_waiting(
    project, n_workers, others
):
    """Two of three workers die. The third must not run the case that killed them; no other can."""
    first = str(FIRST[:n_workers])
    project.suite(COLLECTS_SOMETHING_ELSE.replace("{FIRST}", first).replace("OTHERS", others))
    result = project.run(f"-n{n_workers}")
    output = said_by(result, 2)
    assert output.count("but collected different tests: no worker can run the remaining") == 1
    assert set(project.outcomes().values()) <= {"solved", "not_run"}
