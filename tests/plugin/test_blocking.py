"""Whole runs of blocking cases: their output, and functions that never return."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import section

SUITE = """
import logging, threading

def agent(llm, prompt):
    print("printed by", prompt)
    logging.warning("logged by %s", prompt)
    return llm.chat(prompt).text

@prefetch
async def said(llm, prompt) -> str:
    return await llm.run(agent, llm.sync, prompt)

@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_said(said, prompt):
    assert said == "wrong" + prompt
"""


def test_output_and_logs_of_functions_belong_to_their_cases(project):
    project.suite(SUITE)
    shown = project.run("-n0", "-rA").stdout.str()
    for name, other in (("a", "b"), ("b", "a")):
        part = section(shown, f"test_said[m-say {name}-r0]")
        assert f"printed by say {name}" in part
        assert f"logged by say {name}" in part
        assert f"printed by say {other}" not in part


@pytest.mark.slow
def test_function_that_never_returns_delays_neither_its_case_nor_pytest(project):
    project.suite("""
import threading

async def test_it(llm):
    await llm.chat("say a")
    await llm.run(threading.Event().wait)
""")
    done = project.run_apart("-n0", "--ultrapar-episode-timeout", "1", "--ultrapar-coverage", "0")
    assert done.duration < 60
    assert project.kinds() == {("infra", "timeout"): 1}
