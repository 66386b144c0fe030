"""Calls that block the loop of all episodes are named; waits on the loop are not."""

from __future__ import annotations

import json

import pytest

SUITE = """
import asyncio, time
from helper import fetched

async def test_it(llm):
    await llm.chat("say a")
    {call}
"""
HELPER = """
import time

def fetched():
    time.sleep(0.5)
"""


@pytest.fixture
def stalls(project):
    def run(call, options=("-n0",)):
        project.suite(SUITE.format(call=call))
        project.pytester.path.joinpath("helper.py").write_text(HELPER)
        assert project.run(*options).ret == 0
        return json.loads((project.directory / "summary.json").read_text())["stalls"]

    return run


def test_call_that_blocks_is_named_with_its_line_and_cost(stalls, project):
    found = stalls("fetched()")
    assert list(found) == ["fetched (helper.py:5)"]
    assert 0.1 <= found["fetched (helper.py:5)"] <= 5
    project.report.fnmatch_lines(
        ["BLOCKED: a call stopped all episodes * for 0.* s in fetched (helper.py:5): *"]
    )


def test_blocking_in_installed_code_is_attributed_to_its_caller(stalls):
    (place,) = stalls("__import__('subprocess').run(['sleep', '0.5'])")
    assert place == "test_it (test_suite.py:14)"


@pytest.mark.parametrize(
    "call", ["await asyncio.sleep(0.5)", "await asyncio.to_thread(fetched)", "time.sleep(0.01)"]
)
def test_calls_that_do_not_block_are_not_named(stalls, call):
    assert stalls(call) == {}
