"""A lane check keeps the lease with which it is sent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from pytest_ultrapar.broker.protocol import Lease
from pytest_ultrapar.engine.answers import TooLateError
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.engine.lane_check import send_check
from tests.raw_server import RawServer, response


def test_check_whose_lease_expired_during_the_connection_is_not_sent():
    given_back: list[str] = []
    port = SimpleNamespace(release=lambda lease, outcome, feedback: given_back.append(outcome))
    # Called when the check begins, and again when there is a connection.
    times = iter((100.0, 107.0))

    async def answer(peer, request):
        await peer.send(response(b"{}"))

    async def go() -> None:
        there = Endpoint(
            "p/i/k", "p", "i", "k", f"http://127.0.0.1:{server.port}/v1", "", "m", 60.0
        )
        http = HttpClient([there], max_connections=1)
        lease = Lease(1, "p/i/k", 100.0, 105.0, 0.0, 0.0, 1)
        try:
            await send_check(port, http, SimpleNamespace(now_s=lambda: next(times)), there, lease)
        finally:
            await http.close()

    with RawServer(answer) as server, pytest.raises(TooLateError):
        asyncio.run(go())
    assert server.requests == []
    assert given_back == ["unsent"]
