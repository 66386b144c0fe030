"""The effects of a faults file on requests, on a real server, and its log entries."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp
import httpx
import pytest

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


@pytest.fixture
def faulty(tmp_path):
    """A function that starts a server of a pool with the faults of a text, as a context."""

    def serve(text, pool=None):
        pool = pool or simulated_pool(models={"m": ("m", "i1")}, keys=("key0", "key1"))
        return running(pool, tmp_path, faults=faults_of(pool, tmp_path, text))

    return serve


@pytest.fixture
def log(tmp_path):
    return lambda: read_server_log(tmp_path / "server.log")


def post(server, text="hello", model="m", key="key0", **more):
    url = server.base_url(PROVIDER) + PATH
    return httpx.post(url, headers=bearer(key), json={**question(text, model), **more}, timeout=60)


def test_error_has_the_given_status_headers_and_body(faulty, log):
    text = """
    [[fault]]
    name = "gateway"
    kind = "error"
    status = 502
    body = "<html>bad</html>"
    for_requests = 1
    headers = { content-type = "text/html", retry-after = ["1e999", "soon"], x-a = "b" }
    """
    with faulty(text) as server:
        response = post(server)
        assert post(server).status_code == 200
    assert response.status_code == 502
    assert response.text == "<html>bad</html>"
    assert response.headers.get_list("retry-after") == ["1e999", "soon"]
    assert response.headers.get_list("content-type") == ["text/html"]
    assert response.headers["x-a"] == "b"
    first, second = log().requests
    assert (first.status, first.admitted, first.fault) == (502, False, "gateway")
    assert (second.status, second.admitted, second.fault) == (200, True, None)


def test_fault_applies_only_to_its_lanes_and_the_first_of_several_wins(faulty, log):
    text = """
    [[fault]]
    kind = "error"
    key = "key1"
    status = 401
    [[fault]]
    kind = "error"
    instance = "i1"
    status = 404
    """
    with faulty(text) as server:
        places = [(key, model) for key in ("key0", "key1") for model in ("m", "i1")]
        statuses = [post(server, key=key, model=model).status_code for key, model in places]
    assert statuses == [200, 404, 401, 401]
    assert [row.fault for row in log().requests] == [None, "error 2", "error 1", "error 1"]


def test_late_error_holds_its_seat_until_it_is_sent(faulty, log):
    text = '[[fault]]\nkind = "error"\nstatus = 504\nafter_s = 0.05'
    with faulty(text) as server:
        assert post(server).status_code == 504
    (row,) = log().requests
    assert (row.status, row.admitted, row.fault) == (504, True, "error 1")
    assert row.t_end_s - row.t_arrival_s >= 0.048


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at", ["start", "body"])
def test_hang_holds_its_seat_until_the_client_leaves(faulty, log, at, stream):
    pool = simulated_pool(per_key=Limit("", "key", workers=1))
    text = f'[[fault]]\nkind = "hang"\nat = "{at}"\nfor_requests = 1'
    body = {**question(), "stream": stream}
    with faulty(text, pool) as server:
        url = server.base_url(PROVIDER) + PATH
        with (
            httpx.Client(headers=bearer(), timeout=60.0) as client,
            pytest.raises(httpx.ReadTimeout),
        ):
            client.post(url, json=body, timeout=httpx.Timeout(10, read=0.3))
        assert httpx.post(url, headers=bearer(), json=body, timeout=60.0).status_code == 200
    first, second = log().requests
    assert (first.disconnected, first.admitted, first.fault) == (True, True, "hang 1")
    assert second.status == 200
    assert first.t_end_s <= second.t_arrival_s


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("at", "status"), [("start", None), ("body", 200)])
def test_drop_closes_the_connection_and_frees_the_seat(faulty, log, at, status, stream):
    pool = simulated_pool(latency=NEVER, per_key=Limit("", "key", workers=1))
    text = f'[[fault]]\nkind = "drop"\nat = "{at}"\nafter_s = 0'
    with faulty(text, pool) as server:
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                post(server, stream=stream)
    rows = log().requests
    assert [(r.status, r.disconnected, r.fault) for r in rows] == [(status, False, "drop 1")] * 3
    assert log().max_in_flight() == 1


@pytest.mark.slow
def test_share_selects_the_same_requests_in_any_order(faulty, log):
    text = 'seed = 3\n[[fault]]\nkind = "error"\nstatus = 500\nshare = 0.3'
    texts = [f"q{n}" for n in range(40)]
    found = []
    for order in (texts, texts[::-1]):
        with faulty(text) as server, httpx.Client(headers=bearer(), timeout=60.0) as client:
            url = server.base_url(PROVIDER) + PATH
            found.append(
                {t for t in order if client.post(url, json=question(t)).status_code == 500}
            )
        assert log().count(500) == len(found[-1])
    assert found[0] == found[1]
    assert 0 < len(found[0]) < 40


def test_refusal_by_a_limit_is_not_logged_as_a_fault(faulty, log):
    text = """
    [[capacity]]
    limit = "lab/key0"
    workers = 0
    [[fault]]
    kind = "hang"
    """
    with faulty(text, simulated_pool(per_key=Limit("", "key", workers=4))) as server:
        assert post(server).status_code == 429
    assert [(row.status, row.fault) for row in log().requests] == [(429, None)]


async def hammer(server, n, **more):
    """Statuses of this many requests at once; unanswered requests leave after the others."""
    url = server.base_url(PROVIDER) + PATH

    async def ask(session, k):
        async with session.post(url, json={**question(f"q{k}"), **more}) as response:
            await response.read()
            return response.status

    async with aiohttp.ClientSession(
        headers=bearer(), connector=aiohttp.TCPConnector(limit=n)
    ) as session:
        return await asyncio.gather(*(ask(session, k) for k in range(n)))


def test_limit_has_other_numbers_while_its_entry_applies(faulty, log):
    pool = simulated_pool(latency=Latency("fixed", 0.3), per_key=Limit("", "key", workers=10))
    with faulty('[[capacity]]\nlimit = "lab/*"\nfactor = 0.5', pool) as server:
        statuses = Counter(asyncio.run(hammer(server, 30)))
    assert log().max_in_flight() == statuses[200] == 5
    assert statuses[429] == 25


def test_tokens_per_minute_count_prompt_and_completion(faulty):
    with faulty('[[capacity]]\nkey = "key0"\ntpm = 9') as server:
        responses = [post(server) for _ in range(3)]
    # 5 tokens each: the second one begins within the limit, as the one call of tolerance.
    assert [r.status_code for r in responses] == [200, 200, 429]
    assert responses[-1].json()["error"]["type"] == "tokens"


@pytest.mark.slow
def test_every_seat_is_free_after_any_fault(faulty, log):
    pool = simulated_pool(latency=Latency("log-normal", 0.01, 0.5), per_key=Limit("", "key", 8))
    kinds = [
        'kind = "hang"',
        'kind = "hang"\nat = "body"',
        'kind = "drop"',
        'kind = "drop"\nat = "body"',
        'kind = "error"\nstatus = 500',
        'kind = "error"\nstatus = 502\nafter_s = 0.01',
        'kind = "malformed"',
    ]
    text = "\n".join(f"[[fault]]\n{kind}\nshare = 0.08" for kind in kinds)

    async def run(url):
        timeout = aiohttp.ClientTimeout(total=0.5)
        async with aiohttp.ClientSession(headers=bearer(), timeout=timeout) as session:

            async def client(n):
                for k in range(25):
                    body = {**question(f"q{n} {k}"), "stream": bool(k % 2)}
                    try:
                        async with session.post(url, json=body) as response:
                            await response.read()
                    except (aiohttp.ClientError, TimeoutError):
                        continue

            await asyncio.gather(*(client(n) for n in range(12)))

    with faulty(text, pool) as server:
        asyncio.run(run(server.base_url(PROVIDER) + PATH))
        assert post(server).status_code in {200, 500, 502}
    rows = log().requests
    assert all(row.t_end_s is not None for row in rows)
    assert log().max_in_flight() <= 8
    assert len(Counter(row.fault for row in rows if row.fault)) == len(kinds)
