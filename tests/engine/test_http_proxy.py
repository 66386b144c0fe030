"""A proxy that never opens its tunnel."""

from __future__ import annotations

import asyncio

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.pool.network import Proxy, Route
from tests.raw_server import RawServer


async def exchange_through(port: int) -> object:
    endpoint = Endpoint(
        lane=LaneId("p/i/key0"),
        provider="p",
        instance="i",
        key="key0",
        url="https://api.example.com/v1/chat/completions",
        token="secret",
        api_name="m",
        timeout_s=0.5,
        route=Route(proxy=Proxy(f"http://127.0.0.1:{port}")),
    )
    client = HttpClient([endpoint], max_connections=1)
    try:
        # The deadline of the exchange is far away: the connection timeout ends it.
        return await client.exchange(endpoint, b"{}", timeout_s=60)
    finally:
        await client.close()


def test_proxy_that_never_answers_is_a_failed_connection_and_costs_nothing():
    with RawServer(lambda peer, _: peer.gone()) as proxy:
        result = asyncio.run(exchange_through(proxy.port))
    assert isinstance(result, Failure)
    assert (result.outcome, result.maybe_billed) == ("connect", False)
    (head,) = (request.raw for request in proxy.requests)
    assert head.startswith(b"CONNECT api.example.com:443 ")
    assert b"secret" not in head
