"""Streams over real sockets: how they end and break, and whether the connection is used again."""

import asyncio
import gzip
from contextlib import contextmanager

import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.engine import http
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.http import HttpClient
from tests.raw_server import RawServer

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
ONE = b'data: {"choices": [{"delta": {"content": "one"}}]}\n\n'
TWO = b'data: {"choices": [{"delta": {"content": "two"}, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
STAY, LEAVE = None, ...
"""The server's action on a connection after its last piece."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@contextmanager
def server(*pieces):
    """Answer each request with the same pieces, a little apart."""

    async def answer(peer, _):
        for piece in pieces:
            if piece is STAY:
                await peer.gone()
            elif piece is LEAVE:
                peer.close()
            else:
                await peer.send(piece)
                await asyncio.sleep(0.01)

    with RawServer(answer) as one:
        yield one


def talk(
    *pieces, n: int = 1, timeout_s: float = 60.0, **limits: int
) -> tuple[Reply | Failure, int]:
    """The result of the last of n requests, and the number of connections used."""

    async def go():
        with server(*pieces) as one:
            endpoint = Endpoint(
                "p/i/k", "p", "i", "k", one.base_url, "none", "m", 60.0, stream=True
            )
            client = HttpClient([endpoint], max_connections=4, **limits)
            try:
                for _ in range(n):
                    found = await client.exchange(endpoint, b"{}", timeout_s=timeout_s)
            finally:
                await client.close()
            n_connections = len({request.connection for request in one.requests})
            if isinstance(found, Failure):
                return found, n_connections
            return found.stream.reply("p/i/k", 1.0), n_connections

    return asyncio.run(go())


def test_next_request_uses_the_connection_of_a_finished_stream():
    reply, n_connections = talk(HEAD + b"\r\n", chunk(ONE), chunk(TWO), chunk(DONE), LAST, n=3)
    assert reply.text == "onetwo"
    assert n_connections == 1


def test_reply_does_not_wait_for_data_after_the_end_of_the_stream(monkeypatch):
    monkeypatch.setattr(http, "_REST_S", 0.02)
    for goes_on in ((STAY,), (LEAVE,), (chunk(b": ping\n\n"),) * 1000):
        reply, n_connections = talk(HEAD + b"\r\n", chunk(ONE + TWO), chunk(DONE), *goes_on, n=2)
        assert reply.text == "onetwo"
        assert n_connections == 2


def test_stream_without_a_declared_end_ends_with_its_connection():
    head = HEAD.replace(b"transfer-encoding: chunked", b"connection: close")
    assert talk(head + b"\r\n", ONE, TWO, LEAVE)[0].text == "onetwo"
    assert talk(head + b"\r\n", ONE, LEAVE)[0].outcome == "malformed"


@pytest.mark.parametrize(
    ("pieces", "outcome"),
    [
        ((chunk(ONE), LEAVE), "malformed"),
        ((chunk(ONE), chunk(TWO)[:-20], LEAVE), "malformed"),
        ((chunk(ONE), b"no chunk\r\n"), "malformed"),
        ((chunk(ONE), LAST), "malformed"),
        ((chunk(ONE), chunk(DONE[:6]), LAST), "malformed"),
        ((chunk(ONE), STAY), "timeout"),
        ((chunk(ONE), *[b"1\r\n:\r\n"] * 1000), "timeout"),
    ],
    ids=["reset", "cut in a chunk", "no chunk", "ends early", "cut event", "silent", "drips"],
)
def test_stream_that_breaks_may_be_billed(pieces, outcome):
    timeout_s = 0.3 if outcome == "timeout" else 60.0
    found, _ = talk(HEAD + b"\r\n", *pieces, timeout_s=timeout_s)
    assert isinstance(found, Failure)
    assert (found.outcome, found.maybe_billed) == (outcome, True)


def test_stream_may_be_compressed_even_if_not_requested():
    packed = gzip.compress(ONE + TWO + DONE)
    coded = (
        HEAD + b"content-encoding: gzip\r\n\r\n",
        *(chunk(packed[n : n + 9]) for n in range(0, len(packed), 9)),
    )
    assert talk(*coded, LAST)[0].text == "onetwo"
    found, _ = talk(*coded[:3], LAST)
    assert found.outcome == "malformed"


def test_stream_has_a_maximum_size():
    comment = chunk(b":" * 101 + b"\n")
    found, _ = talk(HEAD + b"\r\n", comment, comment, STAY, largest_bytes=200)
    assert (found.outcome, found.maybe_billed) == ("malformed", True)
    assert "larger than 200 bytes" in found.message
