"""Deadlines hold whatever a socket does."""

from __future__ import annotations


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
    assert "1 request timed out: without `stream = true` a server may" in project.report.str()
