from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
from itertools import pairwise
from urllib.parse import urlsplit

import aiohttp
import pytest

from pytest_ultrapar.pool.model import Latency, Limit
from pytest_ultrapar.testing import read_server_log
from tests.simulated_pool import (
    NEVER,
    PROVIDER,
    bearer,
    question,
    running,
    simulated_pool,
)

N_CLIENTS = 100


async def hammer(url, requests, *, until_answered=False, n_awaited=None):
    """Send all requests, each from a client of its own; return (status, headers, body) of each.

    Stop after `n_awaited` answers: the clients without an answer then leave.
    """
    answers = []
    enough = asyncio.Event()

    async def client(session, headers, body):
        while True:
            async with session.post(url, headers=headers, json=body) as response:
                answers.append((response.status, response.headers, await response.json()))
                if len(answers) == n_awaited:
                    enough.set()
                if response.status == 200 or not until_answered:
                    return

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=N_CLIENTS)) as session:
        clients = [asyncio.create_task(client(session, *request)) for request in requests]
        if n_awaited is None:
            await asyncio.gather(*clients)
        else:
            await enough.wait()
            for task in clients:
                task.cancel()
            await asyncio.wait(clients)
    return answers


def requests(n, keys=("key0",), models=("m",)):
    return [
        (bearer(keys[i % len(keys)]), question(f"q{i}", models[i % len(models)])) for i in range(n)
    ]


THREE = {"m": ("i0", "i1", "i2")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "n_seats"),
    [
        ({"per_key": Limit("", "key", workers=7)}, 14),
        ({"per_instance": Limit("", "instance", workers=4)}, 12),
        ({"more": [Limit("lab", "provider", workers=1)]}, 1),
        (
            {
                "per_key": Limit("", "key", workers=7),
                "more": [Limit("pool", "pool", workers=13), Limit("lab", "provider")],
            },
            13,
        ),
    ],
)
def test_seats_are_exact_with_a_hundred_clients(tmp_path, limits, n_seats):
    pool = simulated_pool(models=THREE, keys=("key0", "key1"), latency=NEVER, **limits)
    sent = requests(N_CLIENTS, ("key0", "key1"), THREE["m"])
    with running(pool, tmp_path) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        answers = asyncio.run(hammer(url, sent, n_awaited=N_CLIENTS - n_seats))
    log = read_server_log(tmp_path / "server.log")
    assert len(answers) == log.count(429) == N_CLIENTS - n_seats
    assert len(log.requests) == N_CLIENTS
    assert log.max_in_flight() == n_seats
    for status, headers, body in answers:
        assert status == 429
        assert headers["retry-after"] == "1"
        assert headers["retry-after-ms"] == "1000"
        assert body["error"]["code"] == "rate_limit_exceeded"


def test_every_request_is_served_and_refusals_happen_only_at_full_seats(tmp_path):
    pool = simulated_pool(
        models=THREE,
        keys=("key0", "key1"),
        latency=Latency("fixed", 0.005),
        per_key=Limit("", "key", workers=4),
        per_instance=Limit("", "instance", workers=3),
    )
    sent = requests(N_CLIENTS, ("key0", "key1"), THREE["m"])
    with running(pool, tmp_path) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        asyncio.run(hammer(url, sent, until_answered=True))
    log = read_server_log(tmp_path / "server.log")
    assert log.count(200) == N_CLIENTS
    assert log.count(200) + log.count(429) == len(log.requests)
    held = [row for row in log.requests if row.admitted]
    for row in log.requests:
        others = [h for h in held if h.t_arrival_s <= row.t_arrival_s < h.t_end_s and h is not row]
        is_full = (
            sum(other.key == row.key for other in others) >= 4
            or sum(other.instance == row.instance for other in others) >= 3
        )
        assert is_full == (not row.admitted)


def test_rate_tolerates_one_call_and_tells_when_to_retry(tmp_path):
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


def test_client_that_waits_for_retry_after_is_admitted(tmp_path):
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


class Caller:
    """A connection that sends requests and reads no answers."""

    def __init__(self, server):
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self._path = urlsplit(server.base_url(PROVIDER)).path + "/chat/completions"
        self._connection.connect()

    def send(self, model):
        body = json.dumps(question(model=model))
        self._connection.request("POST", self._path, body, bearer())

    def ask(self, model):
        self.send(model)
        response = self._connection.getresponse()
        response.read()
        return response.status

    def leave(self):
        self._connection.close()


@pytest.mark.slow
def test_seat_of_a_departed_client_is_free_for_the_next_request(tmp_path):
    pool = simulated_pool(
        models={"slow": ("slow",)}, latency=NEVER, per_key=Limit("", "key", workers=1)
    )
    n = 60
    with running(pool, tmp_path) as server:
        callers = [Caller(server) for _ in range(n)]
        callers[0].send("slow")
        for holder, following in pairwise(callers):
            # After two answers the server has judged the holder's request, which was sent before
            # them. And the kernel reports a connection that was just active before the holder's
            # older end.
            assert [following.ask("none"), following.ask("none")] == [404, 404]
            holder.leave()
            following.send("slow")
        assert [callers[0].ask("none"), callers[0].ask("none")] == [404, 404]
    callers[0].leave()
    callers[-1].leave()
    log = read_server_log(tmp_path / "server.log")
    slow = [row for row in log.requests if row.model == "slow"]
    assert [row.admitted for row in slow] == [True] * n
    assert [row.disconnected for row in slow] == [True] * (n - 1) + [False]
    for left, came in pairwise(slow):
        assert left.t_end_s <= came.t_arrival_s


def test_request_whose_client_leaves_immediately_is_in_the_log(tmp_path):
    pool = simulated_pool(models={"slow": ("slow",)}, latency=NEVER)
    n = 60
    with running(pool, tmp_path) as server:
        callers = [Caller(server) for _ in range(n)]
        last = Caller(server)
        assert last.ask("none") == 404
        # Request and end reach the stopped server together.
        os.kill(server.pid, signal.SIGSTOP)
        for caller in callers:
            caller.send("slow")
            caller.leave()
        os.kill(server.pid, signal.SIGCONT)
        assert [last.ask("none"), last.ask("none")] == [404, 404]
        last.leave()
    slow = [r for r in read_server_log(tmp_path / "server.log").requests if r.model == "slow"]
    assert [row.disconnected for row in slow] == [True] * n
