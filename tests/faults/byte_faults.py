"""Ways for a server to fail at one request, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tests.raw_server import Peer, json_response, response


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the server reads it.

    Attributes:
        prompt: The text of its last message.
        number: Its number from 1, in order of arrival.
        nth: The number of requests with this prompt so far, including this one.
        words: The prompt without its first word.
        t_s: Seconds since the server's first request.
    """

    prompt: str
    token: str
    model: str
    number: int = 1
    nth: int = 1
    words: str = ""
    t_s: float = 0.0


Fault = Callable[[Peer, Asked], Awaitable[None]]

MEGABYTE = 1024 * 1024


# -- whole answers ---------------------------------------------------------------------------------


def completion(words: str, n_in: int = 3, n_out: int = 5) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": words},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out}
    return json.dumps({"id": "x", "choices": [choice], "usage": usage}).encode()


async def say(peer: Peer, asked: Asked) -> None:
    await peer.send(response(completion(asked.words)))


def after(seconds: float, fault: Fault = say) -> Fault:
    """Do the same, but later."""

    async def late(peer: Peer, asked: Asked) -> None:
        await asyncio.sleep(seconds)
        await fault(peer, asked)

    return late


def refuse(
    status: int, *headers: bytes, code: str | None = None, message: str = "as scripted"
) -> Fault:
    """Send a complete, valid error of the API."""
    answer = {"error": {"message": message, "code": code}}
    return bytes_(json_response(answer, *headers, status=status))


def bytes_(*pieces: bytes) -> Fault:
    """Send exactly these bytes and keep the connection."""

    async def sent(peer: Peer, _: Asked) -> None:
        await peer.send(*pieces)

    return sent


def body(content: bytes, *headers: bytes) -> Fault:
    """Send a complete answer 200 with this body."""
    return bytes_(response(content, *headers))


def telling(*headers: bytes) -> Fault:
    """Send the right answer with more headers."""

    async def told(peer: Peer, asked: Asked) -> None:
        await peer.send(response(completion(asked.words), *headers))

    return told


# -- connections that end --------------------------------------------------------------------------


def cut(share: float, end: Callable[[Peer], None]) -> Fault:
    """Send a share of the answer's body, or no byte if the share is below 0, then `end`."""

    async def ended(peer: Peer, asked: Asked) -> None:
        head, _, content = response(completion(asked.words)).partition(b"\r\n\r\n")
        if share >= 0:
            await peer.send(head + b"\r\n\r\n")
            await peer.send(content[: int(share * len(content))])
            # Wait, so that the bytes reach the client before the reset, which would overtake them.
            await asyncio.sleep(0.05)
        end(peer)

    return ended


leave = cut(-1, Peer.close)


async def half_close(peer: Peer, _: Asked) -> None:
    peer.half_close()
    await peer.gone()
    peer.close()


async def half_close_in_body(peer: Peer, asked: Asked) -> None:
    await cut(0.5, Peer.half_close)(peer, asked)
    await peer.gone()
    peer.close()


async def stale(peer: Peer, asked: Asked) -> None:
    """Send a good answer on a connection that ends when it is used again."""
    peer.doomed = True
    await say(peer, asked)


# -- endless answers -------------------------------------------------------------------------------


async def silence(peer: Peer, _: Asked) -> None:
    await peer.gone()
    peer.close()


async def slow_head(peer: Peer, asked: Asked) -> None:
    await _drip(peer, response(completion(asked.words)))


async def slow_body(peer: Peer, asked: Asked) -> None:
    head, _, content = response(completion(asked.words)).partition(b"\r\n\r\n")
    await peer.send(head + b"\r\n\r\n")
    await _drip(peer, content)


async def _drip(peer: Peer, content: bytes) -> None:
    """Send a byte each second."""
    for position in range(len(content)):
        if peer.has_left():
            break
        await peer.send(content[position : position + 1])
        await asyncio.sleep(1.0)
    peer.close()


async def flood(peer: Peer, _: Asked) -> None:
    """Send interim answers without end."""
    while True:
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
        await asyncio.sleep(0.01)


# -- answers that cannot be read -------------------------------------------------------------------


async def short_json(peer: Peer, asked: Asked) -> None:
    """Send JSON that stops in the middle, in a complete HTTP answer."""
    content = completion(asked.words)
    await peer.send(response(content[: len(content) // 2]))


async def long_length(peer: Peer, asked: Asked) -> None:
    """Send fewer bytes than the length says, and close in order."""
    content = completion(asked.words)
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(content) + 100))
    await peer.send(content)
    peer.close()


async def long_length_kept(peer: Peer, asked: Asked) -> None:
    """Send fewer bytes than the length says, and never close."""
    content = completion(asked.words)
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(content) + 100))
    await peer.send(content)
    await silence(peer, asked)


async def short_length(peer: Peer, asked: Asked) -> None:
    """Send more bytes than the length says; keep the connection."""
    content = completion(asked.words)
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(content) - 20) + content
    )


async def cut_chunk(peer: Peer, asked: Asked) -> None:
    """Close in order in the middle of a chunk."""
    content = completion(asked.words)
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    await peer.send(head, b"%x\r\n" % len(content), content[: len(content) // 2])
    peer.close()


async def bad_chunk(peer: Peer, asked: Asked) -> None:
    """Send a chunk with an invalid size."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    await peer.send(head, b"zz\r\n", completion(asked.words))


def reply_of(text_json: bytes) -> bytes:
    """A completion whose text is given as JSON, with its quotes."""
    return completion("TEXT").replace(b'"TEXT"', text_json)


def nested(depth: int) -> bytes:
    return b'{"choices": ' + b"[" * depth + b"]" * depth + b"}"


def bomb(n_megabytes: int) -> Iterator[bytes]:
    """A gzip stream of this many MiB of spaces, in pieces of a KiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    yield packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(b" " * MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(n_megabytes):
        yield piece


async def double_bomb(peer: Peer, _: Asked) -> None:
    """Send 1 GiB of spaces in a few kB, compressed twice."""
    content = gzip.compress(b"".join(bomb(1024)))
    await peer.send(response(content, b"content-encoding: gzip, gzip"))


async def large(peer: Peer, asked: Asked) -> None:
    """Send a good answer of 10 MB."""
    await peer.send(response(completion(asked.words + "x" * 10_000_000)))


async def too_large(peer: Peer, asked: Asked) -> None:
    """Send a good answer of 20 MB."""
    await peer.send(response(completion(asked.words + "x" * 20_000_000)))


async def long_header(peer: Peer, asked: Asked) -> None:
    await peer.send(response(completion(asked.words), b"x-long: " + b"h" * 100_000))


async def interim(peer: Peer, asked: Asked) -> None:
    """Send interim answers, then a good one: no fault."""
    await peer.send(b"HTTP/1.1 103 Early Hints\r\nlink: </>\r\n\r\n" * 3)
    peer.status = None
    await say(peer, asked)


FAULTS: dict[str, Fault] = {
    "say": say,
    "work": after(0.05),
    "reset_before": cut(-1, Peer.reset),
    "reset_after": cut(0, Peer.reset),
    "reset_mid": cut(0.5, Peer.reset),
    "leave": leave,
    "half_close": half_close,
    "half_close_in_body": half_close_in_body,
    "stale": stale,
    "silence": silence,
    "slow_head": slow_head,
    "slow_body": slow_body,
    "flood": flood,
    "short_json": short_json,
    "long_length": long_length,
    "long_length_kept": long_length_kept,
    "short_length": short_length,
    "cut_chunk": cut_chunk,
    "bad_chunk": bad_chunk,
    "bad_utf8": body(reply_of(b'"caf\xe9 \xff"')),
    "surrogate": body(reply_of(rb'"half \ud83d of it"')),
    "nul": body(reply_of(rb'"a\u0000b"')),
    "ansi": body(reply_of(rb'"\u001b[2J\u001b]0;owned\u0007\u009b31m\u001b[45;1mPASSED\u001b[0m"')),
    "bidi": body(reply_of(rb'"\u202egnp.exe\u2066"')),
    "script": body(reply_of(b'"</script><script>alert(1)</script>"')),
    "formula": body(reply_of(b"\"=cmd|' /C calc'!A0\"")),
    "nested": body(nested(100_000)),
    "double_bomb": double_bomb,
    "large": large,
    "too_large": too_large,
    "long_header": long_header,
    "junk_status": bytes_(b"I am no HTTP server\r\n\r\n"),
    "no_status": bytes_(b"HTTP/1.1 abc\r\n\r\n"),
    "interim": interim,
    "server_error": refuse(500),
    "unavailable": refuse(503),
}
