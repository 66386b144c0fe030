"""Deadlines hold, even if a socket never answers."""

from __future__ import annotations

import asyncio

import pytest

from tests.plugin.conftest import cases


def test_deadline_of_an_episode_includes_all_waiting(project):
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
    assert "1 request timed out: without `stream = true`, the server may" in project.report.str()


@pytest.mark.slow
def test_long_streamed_answer_costs_no_other_case(project):
    """The server writes one answer at a time, and ends it if it cannot send the next token."""
    project.write_pool(seats=1, timeout_s=1, provider="stream = true")
    slot = asyncio.Lock()

    async def write(peer, asked):
        async with slot:
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            for _ in range(int(asked.words.split()[0])):
                if peer.has_left():
                    break
                await peer.send(b'data: {"choices": [{"delta": {"content": "a "}}]}\n\n')
                await asyncio.sleep(0.01)
            await peer.send(b"data: [DONE]\n\n")
        peer.close()

    project.server.faults["write"] = write
    project.suite(cases(["write 3000", *(f"write 8 {n}" for n in range(7))]))
    assert project.run("-n0", "--ultrapar-coverage=0").ret == 0
    assert project.kinds() == {("solved", None): 7, ("infra", "timeout"): 1}
    assert project.outcomes()["test_it[m-write 3000-r0]"] == "infra"


@pytest.mark.slow
def test_server_that_closes_after_each_stream_costs_no_case(project):
    """As llama.cpp does, which does not announce it."""
    project.write_pool(seats=4, timeout_s=20, provider="stream = true")

    async def stream(peer, asked):
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n")
        await peer.send(b"content-type: text/event-stream\r\n\r\n")
        for event in (b'{"choices": [{"delta": {"content": "a"}}]}', b"[DONE]"):
            line = b"data: " + event + b"\n\n"
            await peer.send(b"%x\r\n%b\r\n" % (len(line), line))
        await peer.send(b"0\r\n\r\n")
        # Its thread is busy for a while before it closes.
        await asyncio.sleep(asked.nth * 0.001)
        peer.close()

    project.server.faults["stream"] = stream
    project.suite(cases([f"stream {n}" for n in range(200)]))
    assert project.run("-n0", "--ultrapar-max-attempts=2", "--ultrapar-coverage=0").ret == 0
    assert project.kinds() == {("solved", None): 200}
    assert {row["outcome"] for row in project.rows("attempts")} <= {"ok", "closed"}
