"""Tests next to episodes do not change the process in which the episodes run."""

from __future__ import annotations

import json
import os

import pytest

BESIDE = """
import asyncio, os, threading, warnings

class Gate:
    def __init__(self):
        self.event = threading.Event()

    def open(self):
        self.event.set()

    def passed(self):
        return self.event.wait(20)

    async def awaited(self):
        async with asyncio.timeout(20):
            while not self.event.is_set():
                await asyncio.sleep(0.005)
"""
"""Let tests and an episode wait for each other. pytest starts an item when the next one is ready,
so another test follows the test that opens the last gate."""


def test_variables_stay_while_an_episode_iterates_them(project):
    project.suite(
        BESIDE
        + """
RUNS, ITERATES, ENDED = Gate(), Gate(), Gate()

@prefetch
async def looking(llm) -> int:
    before = set(os.environ)
    await RUNS.awaited()
    variables = iter(os.environ.items())
    next(variables)
    ITERATES.open()
    await ENDED.awaited()
    seen = len(dict(variables)) + 1
    assert set(os.environ) == before
    await llm.chat([{"role": "user", "content": "say a"}])
    return len(before) - seen

def test_first():
    assert os.environ["PYTEST_CURRENT_TEST"] == "test_suite.py::test_first (call)"
    RUNS.open()
    assert ITERATES.passed()

def test_second():
    ENDED.open()

def test_last():
    pass

def test_it(looking):
    assert looking == 0
"""
    )
    before = dict(os.environ)
    project.run_here("-n0").assert_outcomes(passed=3)
    assert project.outcomes() == {"test_it[m-r0]": "solved"}
    assert dict(os.environ) == before


@pytest.mark.slow
def test_warning_filters_of_a_test_do_not_affect_a_running_episode(project):
    project.suite(
        BESIDE
        + """
STRICT, WARNED = Gate(), Gate()

@prefetch
async def warning(llm) -> str:
    await STRICT.awaited()
    try:
        warnings.warn("from an episode")
    finally:
        WARNED.open()
    return (await llm.chat([{"role": "user", "content": "say a"}])).text

@pytest.mark.filterwarnings("error:from:UserWarning")
def test_strict():
    STRICT.open()
    assert WARNED.passed()
    with pytest.raises(UserWarning):
        warnings.warn("from a test")

def test_last():
    pass

def test_it(warning):
    assert warning == "a"
"""
    )
    project.run_here("-n0", "-W", "always:from:UserWarning").assert_outcomes(passed=2)
    assert project.outcomes() == {"test_it[m-r0]": "solved"}
    strict = project.run_here("-n0", "-W", "error:from:UserWarning")
    strict.stdout.fnmatch_lines(["*UserWarning: from an episode"])
    assert project.outcomes() == {"test_it[m-r0]": "error"}


@pytest.mark.parametrize(
    ("workers", "prompts"),
    [
        ("-n0", ["slow 4 b", "say a", "say a"]),
        # The first worker fails; the second has one case ready and waits for its next.
        pytest.param("-n2", ["slow 1 a", "say b", "slow 1 a", "slow 4 b"], marks=pytest.mark.slow),
    ],
)
def test_session_fixtures_outlive_the_episodes_that_use_them(project, workers, prompts):
    project.suite(
        f"""
RUNNING = []

@pytest.fixture(scope="session")
def served():
    yield
    assert not RUNNING

@prefetch
async def served_answer(llm, prompt, served) -> str:
    RUNNING.append(prompt)
    try:
        return (await llm.chat([{{"role": "user", "content": prompt}}])).text
    finally:
        RUNNING.remove(prompt)

@pytest.mark.parametrize("prompt", {prompts})
def test_it(served_answer):
    assert served_answer == "b"
"""
    )
    project.run(workers, "-x").assert_outcomes(failed=1)
    manifest = json.loads((project.directory / "manifest.json").read_text())
    assert [lane["lane"] for lane in manifest["lanes"]] == ["p/m/key0"]


@pytest.mark.slow
def test_hundreds_of_episodes_can_read_the_environment(project):
    project.write_pool(keys=3)
    project.suite(
        """
import os, httpx

@prefetch
async def looking(llm, n) -> str:
    for _ in range(50):
        assert dict(os.environ)
    async with httpx.AsyncClient(verify=False):
        return (await llm.chat([{"role": "user", "content": "slow 0.05 a"}])).text

@pytest.mark.parametrize("n", range(300))
def test_it(looking, n):
    assert looking == "a"
"""
    )
    project.run("-n0")
    assert set(project.outcomes().values()) == {"solved"}
