"""Deadlines hold whatever a socket does."""

from __future__ import annotations

import pytest

SUITE = """
import asyncio

@pytest.mark.parametrize("prompt", ["hang", "drip"])
def test_it(answer): pass
"""


def test_request_deadline_ends_silent_and_dripping_sockets(project):
    project.write_pool()
    pool = project.pytester.path / "pool.toml"
    pool.write_text(pool.read_text().replace("timeout_s = 5", "timeout_s = 0.4"))
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-max-attempts", "1", "--ultrapar-coverage", "0")
    assert result.ret == 0
    kinds = {row["param.prompt"]: (row["outcome"], row["kind"]) for row in project.rows()}
    assert kinds == {
        "hang": ("infra", "timeout"),
        "drip": ("infra", "timeout"),
    }
    attempts = project.rows("attempts")
    assert [(a["outcome"], a["maybe_billed"]) for a in attempts] == [("timeout", True)] * 2


def test_episode_deadline_counts_all_its_waiting(project):
    project.suite(
        """
import asyncio

@prefetch
async def endless(llm) -> str:
    while True:
        await asyncio.sleep(0.05)

def test_endless(endless): pass

@pytest.mark.parametrize("prompt", ["hang"])
def test_hanging(answer): pass
"""
    )
    result = project.run("-n0", "--ultrapar-episode-timeout", "0.5", "--ultrapar-coverage", "0")
    assert result.ret == 0
    assert [(row["outcome"], row["kind"]) for row in project.rows()] == [("infra", "timeout")] * 2


@pytest.mark.parametrize("status", [429, 500])
def test_a_failure_that_passes_costs_no_case(project, status):
    project.suite(
        f"""
@pytest.mark.parametrize("prompt", ["once {status} fine", "say fine"])
def test_it(answer):
    assert answer == "fine"
"""
    )
    result = project.run("-n0")
    assert result.ret == 0
    attempts = project.rows("attempts")
    assert len(attempts) == len(project.server.prompts) == 3
    failed = [a for a in attempts if a["outcome"] != "ok"]
    assert [(a["status"], a["attempt"]) for a in failed] == [(status, 0)]
