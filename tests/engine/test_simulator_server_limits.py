from __future__ import annotations

import asyncio
import json
import socket
from itertools import pairwise
from urllib.parse import urlsplit

import aiohttp
import httpx

from pytest_ultrapar.pool.model import Latency, Limit
from pytest_ultrapar.testing import read_server_log
from tests.simulated_pool import (
    AT_ONCE,
    NEVER,
    PROVIDER,
    bearer,
    question,
    running,
    simulated_pool,
)

N_CLIENTS = 100


async def hammer(url, requests, *, until_answered):
    """Send all requests, each by a client of its own; the answers as (status, headers, body)."""
    answers = []

    async def client(session, headers, body):
        while True:
            async with session.post(url, headers=headers, json=body) as response:
                answers.append((response.status, response.headers, await response.json()))
                if response.status == 200 or not until_answered:
                    return

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=N_CLIENTS)) as session:
        await asyncio.gather(*(client(session, *request) for request in requests))
    return answers


def requests(n, keys=("key0",), models=("m",)):
    return [
        (bearer(keys[i % len(keys)]), question(f"q{i}", models[i % len(models)])) for i in range(n)
    ]


def test_caps_are_exact_under_a_hundred_clients(tmp_path):
    pool = simulated_pool(
        models={"m": ("i0", "i1", "i2")},
        keys=("key0", "key1"),
        latency=Latency("fixed", 0.02),
        per_key=Limit("", "key", workers=7),
        per_instance=Limit("", "instance", workers=4),
    )
    with running(pool, tmp_path) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        sent = requests(N_CLIENTS, ("key0", "key1"), ("i0", "i1", "i2"))
        answers = asyncio.run(hammer(url, sent, until_answered=True))
    log = read_server_log(tmp_path / "server.log")
    assert log.count(200) == N_CLIENTS
    assert len(log.requests) == len(answers)
    refused = [(headers, body) for status, headers, body in answers if status != 200]
    assert len(refused) == log.count(429) > 0
    for headers, body in refused:
        assert headers["retry-after"] == "1"
        assert headers["retry-after-ms"] == "1000"
        assert body["error"]["code"] == "rate_limit_exceeded"
    assert [log.max_in_flight(instance=f"i{n}") for n in range(3)] == [4, 4, 4]
    assert max(log.max_in_flight(key=f"key{n}") for n in range(2)) <= 7
    assert log.max_in_flight() == 12


def test_every_refusal_is_of_a_full_house(tmp_path):
    pool = simulated_pool(latency=Latency("fixed", 0.005), more=[Limit("pool", "pool", workers=3)])
    with running(pool, tmp_path) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        asyncio.run(hammer(url, requests(N_CLIENTS), until_answered=True))
    rows = read_server_log(tmp_path / "server.log").requests
    held = [row for row in rows if row.admitted]
    for row in rows:
        others = sum(h.t_arrival_s <= row.t_arrival_s < h.t_end_s for h in held if h is not row)
        assert (others >= 3) == (not row.admitted)


def test_rate_has_one_call_of_tolerance_and_tells_when_to_come_back(tmp_path):
    pool = simulated_pool(per_key=Limit("", "key", qps=10))
    with running(pool, tmp_path) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        answers = asyncio.run(hammer(url, requests(N_CLIENTS), until_answered=False))
    rows = read_server_log(tmp_path / "server.log").requests
    admitted_s = [row.t_arrival_s for row in rows if row.admitted]
    assert len(rows) == N_CLIENTS
    assert len(admitted_s) >= 11
    for row in rows:
        n_before = sum(row.t_arrival_s - 1.0 < t < row.t_arrival_s for t in admitted_s)
        assert n_before <= 10 if row.admitted else n_before == 11
    for status, headers, body in answers:
        if status == 429:
            assert headers["retry-after"] == "1"
            assert 1 <= int(headers["retry-after-ms"]) <= 1000
            assert "10 requests in 1 s" in body["error"]["message"]


def test_client_that_comes_back_when_told_is_admitted(tmp_path):
    pool = simulated_pool(per_key=Limit("", "key", qps=4))

    async def run(url):
        async with aiohttp.ClientSession(headers=bearer()) as session:

            async def ask():
                async with session.post(url, json=question()) as response:
                    return response.status, int(response.headers.get("retry-after-ms", 0))

            statuses = []
            while 429 not in statuses:
                status, wait_ms = await ask()
                statuses.append(status)
            await asyncio.sleep(wait_ms / 1000)
            statuses.append((await ask())[0])
            return statuses

    with running(pool, tmp_path) as server:
        statuses = asyncio.run(run(server.base_url(PROVIDER) + "/chat/completions"))
    assert statuses[-2:] == [429, 200]
    assert statuses.count(200) >= 6


def raw_request(url, text):
    parts = urlsplit(url)
    body = json.dumps(question(text, "slow")).encode()
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: {bearer()['authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def test_seat_of_a_departed_client_is_free_for_the_very_next_request(tmp_path):
    pool = simulated_pool(
        models={"slow": ("slow",), "quick": ("quick",)},
        latency={"slow": NEVER, "quick": AT_ONCE},
        per_key=Limit("", "key", workers=1),
    )
    n = 40
    with running(pool, tmp_path) as server, httpx.Client(headers=bearer()) as client:
        url = server.base_url(PROVIDER) + "/chat/completions"
        address = ("127.0.0.1", server.port)
        sockets = [socket.create_connection(address) for _ in range(n)]
        for i, connection in enumerate(sockets):
            connection.sendall(raw_request(url, f"q{i}"))
            # Refused: the departing one has arrived and its seat is taken.
            assert client.post(url, json=question(model="quick")).status_code == 429
            connection.close()
        assert client.post(url, json=question(model="quick")).status_code == 200
    log = read_server_log(tmp_path / "server.log")
    slow = [row for row in log.requests if row.model == "slow"]
    assert len(slow) == n
    assert all(row.disconnected and row.admitted for row in slow)
    for left, came in pairwise(slow):
        assert left.t_end_s <= came.t_arrival_s


def test_request_whose_client_leaves_at_once_is_in_the_log(tmp_path):
    pool = simulated_pool(
        models={"slow": ("slow",), "quick": ("quick",)},
        latency={"slow": NEVER, "quick": AT_ONCE},
        per_key=Limit("", "key", workers=1),
    )
    n = 40
    with running(pool, tmp_path) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        for i in range(n):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(raw_request(url, f"q{i}"))
        while httpx.post(url, headers=bearer(), json=question(model="quick")).status_code != 200:
            pass
    slow = [r for r in read_server_log(tmp_path / "server.log").requests if r.model == "slow"]
    assert len(slow) == n
    assert all(row.disconnected for row in slow if row.admitted)
