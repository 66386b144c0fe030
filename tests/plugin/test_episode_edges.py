"""Episodes that do with asyncio and pytest what a suite may do: none hangs the run or is lost."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import cases

ASYNCIO = """
import asyncio
import pytest
from pytest_ultrapar import prefetch

async def ask(llm, words):
    return (await llm.chat([{"role": "user", "content": words}])).text
"""


def test_task_that_an_episode_cancels_itself_is_an_error_of_the_suite(project):
    project.pytester.makepyfile(
        ASYNCIO
        + """
@prefetch
async def waits(llm, n) -> str:
    if n == 1:
        task = asyncio.create_task(asyncio.sleep(10))
        task.cancel()
        await task
    return await ask(llm, f"say {n}")

@pytest.mark.parametrize("n", range(3))
def test_it(waits): pass
"""
    )
    assert project.run("-n0").ret == 1
    assert sorted(project.outcomes().values()) == ["error", "solved", "solved"]


def test_pytests_outcomes_come_out_of_a_task_group_as_themselves(project):
    project.pytester.makepyfile(
        ASYNCIO
        + """
@prefetch
async def grouped(llm, how) -> str:
    async def child():
        if how == "skip":
            pytest.skip("no tool here")
        if how == "fail":
            pytest.fail("no good")
    async with asyncio.TaskGroup() as group:
        group.create_task(child())
    return await ask(llm, "say it")

@pytest.mark.parametrize("how", ["skip", "fail", "pass"])
def test_it(grouped): pass
"""
    )
    assert project.run("-n0").ret == 1
    outcomes = {name.split("-")[1]: outcome for name, outcome in project.outcomes().items()}
    assert outcomes == {"skip": "skipped", "fail": "error", "pass": "solved"}


def test_requests_that_a_failed_episode_leaves_behind_end_with_it_and_are_recorded(project):
    project.pytester.makepyfile(
        ASYNCIO
        + """
@prefetch
async def branches(llm) -> str:
    async def bad():
        await asyncio.sleep(0.3)
        raise ValueError("one branch fails")
    await asyncio.gather(bad(), *(ask(llm, f"slow 60 {n}") for n in range(3)))

def test_it(branches): pass
"""
    )
    assert project.run("-n0").ret == 1
    assert set(project.outcomes().values()) == {"error"}
    attempts = project.rows("attempts")
    assert len(attempts) == len(project.server.prompts) == 3
    assert {row["outcome"] for row in attempts} == {"cancelled"}


def test_item_that_another_plugin_skips_takes_no_episode_from_the_next(project):
    project.pytester.makeconftest(
        """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if item.callspec.params.get("prompt") == "say 0":
        pytest.skip("not today")
    return (yield)
"""
    )
    project.suite(cases(6, 'grade("solved" if answer == prompt.split()[1] else "unsolved")'))
    project.run("-n0", "--ultrapar-coverage=0.5")
    assert list(project.outcomes().values()) == ["solved"] * 5


@pytest.mark.slow
def test_groups_that_wait_for_many_cases_behind_them_are_carried_out(project, workers):
    project.pytester.makeconftest(
        """
from pytest_ultrapar import Assignment, Group

def pytest_ultrapar_assign(cases):
    ids = [case.case_id for case in cases]
    return Assignment(
        groups=(Group("second", tuple(ids[:60]), after=("first",)), Group("first", tuple(ids[60:])))
    )
"""
    )
    project.suite(cases(80))
    result = project.run(workers)
    assert result.ret == 0
    assert len(project.outcomes()) == 80
    order = [int(prompt.split()[1]) for prompt in project.server.prompts]
    assert min(order[:20]) >= 60


def test_assignment_with_a_number_that_makes_no_sense_is_refused(project):
    project.pytester.makeconftest(
        """
from pytest_ultrapar import Assignment, Group

def pytest_ultrapar_assign(cases):
    return Assignment(groups=(Group("g", tuple(c.case_id for c in cases), at_once=0),))
"""
    )
    project.suite(cases(["say a"]))
    result = project.run("-n0")
    assert result.ret == 4
    assert "at_once" in result.stderr.str()
    assert project.server.prompts == []


@pytest.mark.slow
def test_resume_by_a_larger_suite_is_refused(project):
    project.suite(cases(4))
    assert project.run("-n0").ret == 0
    project.server.reset()
    project.suite(cases(8))
    result = project.run("-n0", "--ultrapar-resume=latest")
    assert result.ret == 4
    said = (
        "the planned cases are not the same (4 then, 8 now; cases only now: test_suite.py::test_it["
    )
    assert said in result.stderr.str()
    assert project.server.prompts == []
    assert len(project.rows()) == 4


def test_full_disk_stops_the_run_with_one_sentence(project):
    project.pytester.makeconftest(
        """
import os, resource

def pytest_runtest_logstart(nodeid):
    # A disk that is full after 16 KiB, for whoever runs cases; not for the coordinator.
    if os.environ.get("PYTEST_XDIST_WORKER") or "-n0" in CONFIG[0].invocation_params.args:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))

def pytest_sessionfinish():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

CONFIG = []

def pytest_configure(config):
    CONFIG.append(config)
"""
    )
    words = "word " * 200
    project.suite(
        f"""
@pytest.mark.parametrize("prompt", [f"say {{n}} {words}" for n in range(60)], ids=range(60))
def test_it(answer): pass
"""
    )
    result = project.run("-n0")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret in {1, 2}, output
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
    assert "pytest-ultrapar: " in output
    assert "stopped early: " in output
