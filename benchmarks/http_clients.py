"""`python -m benchmarks.http_clients`: the client's CPU per request with httpx and with aiohttp.

Both send the same small requests in turn, to a server in a separate process, with the same number
of open connections. The server answers late, so that all connections are always in use.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from multiprocessing.connection import Connection

import aiohttp
import httpx

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Say hello."}]}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
LATENCY_S = 0.2

Post = Callable[[], Awaitable[object]]


def serve(told: Connection) -> None:
    """Answer every request after `LATENCY_S`, forever."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(len(BODY))
                await asyncio.sleep(LATENCY_S)
                writer.write(_ANSWER)

    async def live() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(live())


async def httpx_post(stack: AsyncExitStack, url: str, n_at_once: int) -> Post:
    """The function that sends one request with httpx."""
    limits = httpx.Limits(max_connections=n_at_once, max_keepalive_connections=n_at_once)
    client = httpx.AsyncClient(limits=limits, timeout=60, trust_env=False)
    await stack.enter_async_context(client)
    return lambda: client.post(url, content=BODY)


async def aiohttp_post(stack: AsyncExitStack, url: str, n_at_once: int) -> Post:
    """The function that sends one request with aiohttp."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=n_at_once))
    await stack.enter_async_context(session)

    async def post() -> None:
        async with session.post(url, data=BODY) as answer:
            await answer.read()

    return post


async def cpu_s(make: Callable[..., Awaitable[Post]], url: str, n: int, n_at_once: int) -> float:
    """The CPU seconds of this process per request, excluding the time to open connections."""
    async with AsyncExitStack() as stack:
        post = await make(stack, url, n_at_once)
        await asyncio.gather(*(post() for _ in range(n_at_once)))

        async def slot(n_own: int) -> None:
            for _ in range(n_own):
                await post()

        began_s = time.process_time()
        await asyncio.gather(*(slot(n // n_at_once) for _ in range(n_at_once)))
        return (time.process_time() - began_s) / (n // n_at_once * n_at_once)


def main() -> None:
    """Measure both in turn, and print the median of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=300, help="open connections")
    parser.add_argument(
        "--requests", type=int, default=1_500, help="requests of each client in a round"
    )
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    ours, its = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(its,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/v1/chat/completions"
    found: dict[str, list[float]] = {"aiohttp": [], "httpx": []}
    for _ in range(asked.rounds):
        for name, make in (("aiohttp", aiohttp_post), ("httpx", httpx_post)):
            per_request_s = asyncio.run(cpu_s(make, url, asked.requests, asked.at_once))
            found[name].append(1e3 * per_request_s)
    server.terminate()
    for name, all_ms in found.items():
        shown = f"{statistics.median(all_ms):.2f} [{min(all_ms):.2f}-{max(all_ms):.2f}]"
        print(f"{name}: {shown} ms of CPU per request, {asked.at_once} at once")


if __name__ == "__main__":
    main()
