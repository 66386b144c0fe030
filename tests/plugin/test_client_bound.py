"""Whole runs that one of their processes slows down: the run names the process and a remedy.

Each process burns CPU and never waits. On a busy machine it gets less CPU, which the run counts as
waiting for a core: the verdict is the same.
"""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import cases

pytestmark = pytest.mark.slow

BURN = """
import os
import time

def burn(cpu_s):
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass
"""
ALL = "; all workers share it: use more hosts or shards (--ultrapar-shard), as each has its own"


def client_bound(project, *options):
    """The run's statement about its client while it sent requests."""
    result = project.run_apart(*options)
    assert result.ret == 0, result.stdout.str()
    said = json.loads((project.directory / "summary.json").read_text())["client_bound"]
    project.report.fnmatch_lines([f"CLIENT-BOUND: {said.replace('[', '[[]')}"])
    result.stdout.fnmatch_lines(["CLIENT-BOUND: *"])
    return said


def test_run_names_a_controller_whose_plugins_burn_cpu_for_each_report(project):
    project.pytester.makeconftest(
        BURN
        + """
def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        burn(0.02)
"""
    )
    project.suite(cases(75))
    said = client_bound(project, "-n2")
    assert "The busiest process (controller) used" in said
    assert said.endswith(ALL)


def test_run_names_a_broker_that_burns_cpu_for_each_lease(project, monkeypatch):
    extra = project.pytester.mkdir("extra")
    # The broker imports this as it starts; pytest's processes and the compactor skip it.
    (extra / "sitecustomize.py").write_text(
        BURN
        + """
import sys

if "pytest_ultrapar.broker.server" in sys.orig_argv:
    from pytest_ultrapar.broker.scheduler import Scheduler

    def grant(*args, grant=Scheduler._grant):
        burn(0.02)
        grant(*args)

    Scheduler._grant = grant
"""
    )
    monkeypatch.setenv("PYTHONPATH", str(extra), prepend=":")
    project.suite(cases(300))
    said = client_bound(project, "-n2")
    assert "The busiest process (broker) used" in said
    assert said.endswith(ALL)


def test_run_names_the_one_worker_whose_episodes_burn_cpu(project):
    project.suite(
        BURN
        + """
@prefetch
async def answer(llm, prompt) -> str:
    for turn in range(10):
        text = (await llm.chat([{"role": "user", "content": f"{prompt} {turn}"}])).text
        if os.environ["PYTEST_XDIST_WORKER"] == "gw1":
            burn(0.01)
    return text
"""
        + cases(40)
    )
    said = client_bound(project, "-n2")
    assert "The busiest process (gw1) used" in said
    assert said.endswith(
        ("; add workers (-n) to share its work", "(-n) or grader jobs to leave it more CPU")
    )


def after_the_answers(project, part, *options):
    """The run's statement about a part after its last answer."""
    result = project.run_apart(*options)
    assert result.ret == 0, result.stdout.str()
    for lines in (project.report, result.stdout):
        lines.fnmatch_lines([f"CLIENT-BOUND: '{part}' took *% of the run: *"])


def test_run_names_a_worker_whose_tests_burn_cpu(project):
    project.write_pool(seats=40)
    project.suite(BURN + cases(40, "burn(0.125)"))
    after_the_answers(project, "after the last answer", "-n1")


def test_run_names_the_making_of_tables_with_twenty_thousand_columns(project):
    scores = "{f'{prompt[4:]}_{k}': 1.0 for k in range(200)}"
    project.suite(cases(100, f"grade(True, **{scores})"))
    after_the_answers(project, "tables", "-n0")
