"""The reason of a retry is the last failure of its own role, even after another role's answer."""

from __future__ import annotations

import asyncio

import msgspec

from pytest_ultrapar.engine.episode import Work, run_episode
from tests.engine.native_play import play, until
from tests.engine.test_native_requests import CHATTED
from tests.engine.test_native_streams import Server
from tests.raw_server import json_response, response

ASKED = [{"role": "user", "content": "Hi"}]


def test_answer_of_a_judge_does_not_hide_why_the_case_waits(tmp_path):
    async def scene(told):
        async def episode(llm):
            own = asyncio.ensure_future(llm.chat(ASKED))
            await until(lambda: llm.conversation.attempts)
            await llm.role("judge").chat(ASKED)
            await own

        parts = msgspec.structs.replace(told.llm._sender.parts, roles={"judge": "m"})
        told.llm._sender.return_unused()
        work = Work(0, "c2", "m", "", 1, episode)
        ended = await run_episode(work, None, parts, timeout_s=0.4, worker="main")
        assert [one.role for one in ended.attempts][:2] == ["", "judge"]
        assert ended.kind == "timeout"
        assert "it was waiting to try again after: " in ended.detail
        assert "out of order" in ended.detail

    # The server announces that it closes each connection: otherwise the judge's request might use
    # one.
    closes = b"connection: close"
    broken = response(b"out of order", closes, status=b"500 Internal Server Error")
    play(tmp_path, Server((broken,), (json_response(CHATTED),), (...,)), scene)
