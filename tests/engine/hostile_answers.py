"""Answers that are meant to harm, and the memory that each takes: a separate program.

    python -m tests.engine.hostile_answers serve            prints its port, ends with its input
    python -m tests.engine.hostile_answers PORT "10 MB"     prints the result and the MiB

The high-water mark of a process never falls. So a new process measures each answer: a fork of one
that has loaded the common modules.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import zlib
from collections.abc import Callable, Iterator

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import MODULES, api_named
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.engine.answers import Answer
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.pool.model import LaneId
from tests.raw_server import Peer, RawServer, Request

MIB = 1024 * 1024
GZIP_BEGIN = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
OPENED = b'{"choices": [{"message": {"content": "'
CLOSED = b'"}, "finish_reason": "stop"}]}'


def plain(body: bytes, *headers: bytes, length: int | None = None) -> Iterator[bytes]:
    """A response with a declared length, right or wrong."""
    declared = b"content-length: %d" % (len(body) if length is None else length)
    yield b"\r\n".join([b"HTTP/1.1 200 OK", declared, *headers]) + b"\r\n\r\n"
    yield body


def endless(piece: bytes, n_pieces: int, *headers: bytes) -> Iterator[bytes]:
    """A response without a length that ends with its connection, after this many pieces."""
    yield b"\r\n".join([b"HTTP/1.1 200 OK", b"connection: close", *headers]) + b"\r\n\r\n"
    for _ in range(n_pieces):
        yield piece


def chunked(chunk: bytes, n_chunks: int) -> Iterator[bytes]:
    """A chunked response with many chunks in each write."""
    yield b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    for _ in range(n_chunks // 1000):
        yield (b"%x\r\n%b\r\n" % (len(chunk), chunk)) * 1000
    yield b"0\r\n\r\n"


def bomb(n_mib: int) -> Iterator[bytes]:
    """Gzip of this many MiB of blanks, a thousandth of that on the wire."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    yield GZIP_BEGIN
    for _ in range(n_mib):
        yield block


def packed_endless(n_mib: int, *headers: bytes) -> Iterator[bytes]:
    """A bomb as a response."""
    yield from endless(b"", 0, b"content-encoding: gzip", *headers)
    yield from bomb(n_mib)


SSE = b"content-type: text/event-stream"
TEXT = b"x" * 10_000_000
RESPONSE = (
    b'{"status": "completed", "output": [{"type": "message", "content":'
    b' [{"type": "output_text", "text": "TEXT"}]}]}'
)
_ANTHROPIC_DELTA = (
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text"}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"text":"xy"}}\n\n'
)
_GEMINI_DELTA = b'data: {"candidates":[{"content":{"parts":[{"text":"xy"}]}}]}\n\n'
DELTA = b'data: {"choices":[{"delta":{"content":"xy"}}]}\n\n'
ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "small": lambda: plain(OPENED + b"hello" + CLOSED),
    "100 kB header": lambda: plain(b"{}", b"x-long: " + b"x" * 100_000),
    "100 kB of headers": lambda: plain(b"{}", *[b"x-%d: %b" % (n, b"x" * 200) for n in range(500)]),
    "100 k nested": lambda: plain(b'{"id":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "100 k nested in a stream": lambda: plain(b'data: {"id":' + b"[" * 100_000 + b"\n\n", SSE),
    "declared too long": lambda: plain(b" " * MIB, length=10 * 1024**3),
    "bytes one by one": lambda: chunked(b" ", 1_000_000),
    "10 GiB bomb": lambda: packed_endless(10 * 1024),
    "10 GiB bomb in a stream": lambda: packed_endless(10 * 1024, SSE),
    "endless": lambda: endless(b" " * MIB, 10 * 1024),
    "endless line in a stream": lambda: endless(b":" * MIB, 10 * 1024, SSE),
    "endless deltas": lambda: endless(DELTA * 20_000, 10 * 1024, SSE),
    "many objects": lambda: plain(b'{"choices":[' + b"{}," * (5 * MIB) + b"{}]}"),
    "many objects with fields": lambda: plain(
        b'{"choices":[' + b'{"a":1},' * (MIB * 3 // 2) + b"{}]}"
    ),
    "10 MB": lambda: plain(OPENED + b"x" * 10_000_000 + CLOSED),
    "10 MB, one wide character": lambda: plain(
        OPENED + b"x" * 10_000_000 + "\N{GRINNING FACE}".encode() + CLOSED
    ),
    "anthropic 10 MB": lambda: plain(
        b'{"content": [{"type": "text", "text": "' + TEXT + b'"}], "stop_reason": "end_turn"}'
    ),
    "anthropic 10 MB of thinking": lambda: plain(
        b'{"content": [{"type": "thinking", "thinking": "' + TEXT + b'", "signature": "x"}]}'
    ),
    "anthropic many objects": lambda: plain(b'{"content":[' + b"{}," * (5 * MIB) + b"{}]}"),
    "anthropic endless deltas": lambda: endless(_ANTHROPIC_DELTA * 10_000, 10 * 1024, SSE),
    "anthropic endless events": lambda: endless(b'data: {"type":"ping"}\n\n' * 10_000, 1024, SSE),
    "openai-responses 10 MB": lambda: plain(RESPONSE.replace(b"TEXT", TEXT)),
    "openai-responses 10 MB in a stream": lambda: plain(
        b'data: {"type":"response.completed","response":'
        + RESPONSE.replace(b"TEXT", TEXT)
        + b"}\n\n",
        SSE,
    ),
    "openai-responses many objects": lambda: plain(b'{"output":[' + b"{}," * (5 * MIB) + b"{}]}"),
    "gemini 10 MB": lambda: plain(
        b'{"candidates": [{"content": {"parts": [{"text": "'
        + TEXT
        + b'"}]}, "finishReason": "STOP"}]}'
    ),
    "gemini endless deltas": lambda: endless(_GEMINI_DELTA * 10_000, 10 * 1024, SSE),
    "gemini many parts": lambda: plain(
        b'{"candidates": [{"content": {"parts": [' + b'{"a":1},' * (MIB * 3 // 2) + b"{}]}}]}"
    ),
}


async def _answer(peer: Peer, request: Request) -> None:
    for piece in ANSWERS[request.json()["name"]]():
        await peer.send(piece)
    await peer.gone()
    peer.close()


def _most_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _outcome(port: int, name: str) -> str:
    lane = LaneId("p/i/k")
    url = f"http://127.0.0.1:{port}/v1"
    streams = "stream" in name or "deltas" in name or "events" in name
    api = api_named(name.split(maxsplit=1)[0] if name.split(maxsplit=1)[0] in MODULES else "openai")
    endpoint = Endpoint(lane, "p", "i", "k", url, "none", "m", 20.0, api=api, stream=streams)
    client = HttpClient([endpoint], max_connections=1)
    body = json.dumps({"name": name}).encode()
    result: Answer | Reply | Failure = await client.exchange(endpoint, body, timeout_s=120.0)
    if isinstance(result, Answer) and result.stream is not None:
        result = result.stream.reply(lane, 1.0)
    elif isinstance(result, Answer):
        result = api.reply(result.body, lane, 1.0)
    await client.close()
    if isinstance(result, Failure):
        return f"{result.outcome}: {result.message}"
    return f"{len(result.text or result.reasoning or '')} characters"


def _measure(port: int, name: str) -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    start_mib = _most_mib()
    said = asyncio.run(_outcome(port, name))
    print(json.dumps([name, said, _most_mib() - start_mib]), flush=True)
    os._exit(0)


def main() -> None:
    """Serve or measure, in separate processes: the server's memory must not count."""
    if sys.argv[1:] == ["serve"]:
        with RawServer(_answer) as server:
            print(server.port, flush=True)
            sys.stdin.read()
        return
    port = int(sys.argv[1])
    asyncio.run(_outcome(port, "small"))
    for name in sys.argv[2:]:
        _measure(port, name)


if __name__ == "__main__":
    main()
