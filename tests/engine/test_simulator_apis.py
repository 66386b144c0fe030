"""One server, all APIs: limits, faults, latencies and the log are the same for each."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from pytest_ultrapar.pool.model import Latency, Limit
from pytest_ultrapar.testing import read_server_log
from tests.simulated_pool import PROVIDER, faults_of, running, simulated_pool

TOKEN = "sim-lab-key0"
BEARER = {"authorization": f"Bearer {TOKEN}"}
SAID = {"role": "user", "content": "hello"}
ASKED = {
    "/v1/chat/completions": (BEARER, {"model": "m", "messages": [SAID]}),
    "/v1/responses": (BEARER, {"model": "m", "input": "hello"}),
    "/v1/messages": (
        {"x-api-key": TOKEN, "anthropic-version": "2023-06-01"},
        {"model": "m", "max_tokens": 50, "messages": [SAID]},
    ),
    "/v1beta/models/m:generateContent": (
        {"x-goog-api-key": TOKEN},
        {"contents": [{"parts": [{"text": "hello"}]}]},
    ),
    "/v1beta/models/m:streamGenerateContent?alt=sse": (
        {"x-goog-api-key": TOKEN},
        {"contents": [{"parts": [{"text": "hello"}]}]},
    ),
}


async def ask_all(server, times, **more):
    """(path, status, body) of this many requests to each path at the same time, in order."""
    root = server.base_url(PROVIDER).removesuffix("/v1")

    async def ask(session, path):
        headers, body = ASKED[path]
        async with session.post(root + path, headers=headers, json=body | more) as response:
            return path, response.status, await response.read()

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        asked = [ask(session, path) for _ in range(times) for path in ASKED]
        # Wait for all: one that breaks must not keep the others from being sent.
        found = await asyncio.gather(*asked, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def test_all_apis_share_a_limit(tmp_path):
    pool = simulated_pool(latency=Latency("fixed", 0.3), per_key=Limit("", "key", workers=5))
    with running(pool, tmp_path) as server:
        found = asyncio.run(ask_all(server, 3))
    statuses = [status for _, status, _ in found]
    assert sorted(set(statuses)) == [200, 429]
    assert statuses.count(200) == 5
    log = read_server_log(tmp_path / "server.log")
    assert log.max_in_flight(key="key0") == 5
    assert [row.model for row in log.requests] == ["m"] * len(found)
    assert log.count(429) == statuses.count(429)


def test_same_request_gets_the_same_bytes(tmp_path):
    with running(simulated_pool(), tmp_path) as server:
        found = asyncio.run(ask_all(server, 3))
    assert {status for _, status, _ in found} == {200}
    for path in ASKED:
        assert len({body for one, _, body in found if one == path}) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_faults_apply_to_requests_of_all_apis(tmp_path, stream):
    pool = simulated_pool(per_key=Limit("", "key", workers=20))
    kinds = [
        'kind = "error"\nerror = "server_error"',
        'kind = "drop"\nat = "body"',
        'kind = "malformed"',
    ]
    each = len(ASKED)
    text = "\n".join(
        f"[[fault]]\n{kind}\nafter_requests = {each * n}\nfor_requests = {each}"
        for n, kind in enumerate(kinds)
    )
    more = {"stream": True} if stream else {}

    async def one_round(server):
        try:
            return [status for _, status, _ in await ask_all(server, 1, **more)]
        except aiohttp.ClientError:
            return ["broken"]

    with running(pool, tmp_path, faults=faults_of(pool, tmp_path, text)) as server:
        found = [asyncio.run(one_round(server)) for _ in range(4)]
    assert found[0] == [500] * each
    assert found[1] == ["broken"]
    assert found[2:] == [[200] * each] * 2
    log = read_server_log(tmp_path / "server.log")
    assert all(row.t_end_s is not None for row in log.requests)
    assert len({row.fault for row in log.requests if row.fault}) == len(kinds)
