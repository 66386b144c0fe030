"""Episodes that use asyncio and pytest in unusual ways: no run hangs, and no case is lost."""

from __future__ import annotations

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


def test_skip_and_fail_in_a_task_group_keep_their_outcome(project):
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


def test_pending_requests_of_a_failed_episode_end_with_it_and_are_recorded(project):
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


def test_code_before_the_first_request_holds_no_seat(project):
    """All are set up at the same time, although there are only two seats."""
    project.write_pool(seats=2)
    project.suite("""
import asyncio
begun, all_begun = [], asyncio.Event()

@prefetch
async def prepared(llm, number) -> str:
    begun.append(number)
    if len(begun) == 20:
        all_begun.set()
    await all_begun.wait()
    return (await llm.chat(f"say {number}")).text

@pytest.mark.parametrize("number", range(20))
def test_it(prepared, number):
    assert prepared == str(number)
""")
    # At a second for each pair of cases it took 9 s.
    assert project.run("-n0", "--ultrapar-episode-timeout=6").ret == 0
    assert list(project.outcomes().values()) == ["solved"] * 20
    assert project.server.work.most <= 2
