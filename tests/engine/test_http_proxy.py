"""A proxy that never makes its tunnel."""

from __future__ import annotations

import asyncio

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.pool.network import Proxy, Route


async def exchange_through_silence() -> tuple[object, list[bytes]]:
    heard: list[bytes] = []
    over = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        await over.wait()
        writer.close()

    proxy = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
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
        # The deadline of the whole is far away: what ends it is that of making the connection.
        result = await client.exchange(endpoint, b"{}", timeout_s=60)
    finally:
        over.set()
        await client.close()
        proxy.close()
        await proxy.wait_closed()
    return result, heard


def test_proxy_that_never_answers_is_no_connection_and_cost_nothing():
    result, heard = asyncio.run(exchange_through_silence())
    assert isinstance(result, Failure)
    assert (result.outcome, result.maybe_billed) == ("connect", False)
    (head,) = heard
    assert head.startswith(b"CONNECT api.example.com:443 ")
    assert b"secret" not in head
