"""A server with a knee: it queues, never refuses, and reports how many requests wait."""

from __future__ import annotations

import asyncio
import re

import aiohttp
import httpx

from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.testing import read_server_log
from tests.simulated_pool import PROVIDER, bearer, question, running, simulated_pool

PATH = "/chat/completions"


def gauges(text):
    found = re.findall(r'vllm:num_requests_(\w+)\{model_name="(\w+)"\} ([\d.]+)\n', text)
    return {(state, name): float(n) for state, name, n in found}


def test_requests_beyond_the_knee_wait_and_all_are_answered(tmp_path):
    pool = simulated_pool(keys=("key0", "key1"), latency=Latency("knee", 0.05, 0.0, 4))

    async def run(url):
        async def ask(session, n):
            headers = bearer(f"key{n % 2}")
            async with session.post(url, headers=headers, json=question(f"q{n}")) as response:
                return response.status

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=40)) as session:
            return await asyncio.gather(*(ask(session, n) for n in range(40)))

    with running(pool, tmp_path) as server:
        assert asyncio.run(run(server.base_url(PROVIDER) + PATH)) == [200] * 40
    rows = read_server_log(tmp_path / "server.log").requests
    ends_s = sorted(row.t_end_s for row in rows)
    # Ten turns of four: no turn can end before all earlier ones.
    for n, end_s in enumerate(ends_s):
        assert end_s - rows[0].t_arrival_s >= 0.05 * (n // 4 + 1) - 0.002 * (n // 4 + 1)
    assert {row.t_end_s for row in rows[:4]} == set(ends_s[:4])


def test_metrics_report_how_many_requests_run_and_wait(tmp_path):
    pool = simulated_pool(models={"m": ("m", "i1")}, latency=Latency("knee", 3600.0, 0.0, 2))

    async def run(root):
        async with aiohttp.ClientSession() as session:

            async def look():
                async with session.get(root + "/metrics") as response:
                    assert response.status == 200
                    assert response.content_type == "text/plain"
                    return gauges(await response.text())

            async def until(running_, waiting):
                while True:
                    seen = await look()
                    if (seen["running", "m"], seen["waiting", "m"]) == (running_, waiting):
                        return seen

            url = root + "/v1" + PATH
            asked = [
                asyncio.create_task(session.post(url, headers=bearer(), json=question(f"q{n}")))
                for n in range(5)
            ]
            seen = [await until(2, 3)]
            for task in asked[:2]:
                task.cancel()
            # When a request leaves, a waiting one takes its place.
            seen.append(await until(2, 1))
            for task in asked:
                task.cancel()
            seen.append(await until(0, 0))
            return seen

    with running(pool, tmp_path) as server:
        root = server.base_url(PROVIDER).removesuffix("/v1")
        seen = asyncio.run(asyncio.wait_for(run(root), 120))
    assert all(one["running", "i1"] == one["waiting", "i1"] == 0 for one in seen)
    assert all(row.disconnected for row in read_server_log(tmp_path / "server.log").requests)


def test_server_without_a_knee_has_no_metrics(tmp_path):
    with running(simulated_pool(), tmp_path) as server:
        root = server.base_url(PROVIDER).removesuffix("/v1")
        assert httpx.get(root + "/metrics", timeout=60.0).status_code == 404
