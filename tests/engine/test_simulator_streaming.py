"""Streamed answers of a real server: the same text as whole answers, over the same time."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import aiohttp
import httpx

from pytest_ultrapar.pool.model import Latency, Limit
from pytest_ultrapar.testing import read_server_log
from tests.simulated_pool import (
    NEVER,
    PROVIDER,
    bearer,
    faults_of,
    question,
    running,
    simulated_pool,
)

PATH = "/chat/completions"
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def documents(response):
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_streamed_answer_has_the_text_and_the_time_of_the_whole_answer(tmp_path):
    pool = simulated_pool(latency=Latency("fixed", 0.1))
    with running(pool, tmp_path) as server:
        url = server.base_url(PROVIDER) + PATH
        whole = httpx.post(url, headers=bearer(), json=question(), timeout=60.0).json()
        streamed = httpx.post(url, headers=bearer(), json={**question(), **STREAM}, timeout=60.0)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    chunks = documents(streamed)
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1])
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert {chunk["id"] for chunk in chunks} == {whole["id"]}
    rows = read_server_log(tmp_path / "server.log").requests
    assert [row.status for row in rows] == [200, 200]
    # uvloop's timers count whole milliseconds.
    assert min(row.t_end_s - row.t_arrival_s for row in rows) >= 0.098


def test_client_that_leaves_during_a_stream_frees_its_seat(tmp_path):
    pool = simulated_pool(per_key=Limit("", "key", workers=1))
    text = '[[fault]]\nkind = "hang"\nat = "body"\nfor_requests = 1'

    async def run(url):
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(headers=bearer(), timeout=timeout) as session:
            response = await session.post(url, json={**question(), **STREAM})
            first = await response.content.readline()
            async with session.post(url, json=question()) as refused:
                statuses = [refused.status]
            response.close()
            # The kernel reports the end to the server, and the next request at the same time, in
            # either order.
            async with asyncio.timeout(10):
                while statuses[-1] == HTTPStatus.TOO_MANY_REQUESTS:
                    async with session.post(url, json=question()) as following:
                        statuses.append(following.status)
            return first, statuses

    with running(pool, tmp_path, faults=faults_of(pool, tmp_path, text)) as server:
        first, statuses = asyncio.run(run(server.base_url(PROVIDER) + PATH))
    assert first.startswith(b"data: {")
    assert (statuses[0], statuses[-1]) == (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.OK)
    left, *others = read_server_log(tmp_path / "server.log").requests
    assert left.disconnected
    assert [row.status for row in others] == statuses
    assert not any(row.disconnected for row in others)


def test_client_that_leaves_before_the_first_piece_frees_its_seat(tmp_path):
    pool = simulated_pool(latency=NEVER, per_key=Limit("", "key", workers=1))

    async def run(url):
        timeout = aiohttp.ClientTimeout(total=0.2)
        async with aiohttp.ClientSession(headers=bearer(), timeout=timeout) as session:
            statuses = []
            for _ in range(3):
                try:
                    async with session.post(url, json={**question(), **STREAM}) as response:
                        statuses.append(response.status)
                except TimeoutError:
                    statuses.append(None)
            return statuses

    with running(pool, tmp_path) as server:
        assert asyncio.run(run(server.base_url(PROVIDER) + PATH)) == [None] * 3
    log = read_server_log(tmp_path / "server.log")
    assert log.max_in_flight() == 1
    assert log.count(429) == 0
