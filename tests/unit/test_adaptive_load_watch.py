"""Servers that report their load, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from pytest_ultrapar.broker.adaptive.server_load import LoadWatch, ServerLoad, ask_load
from pytest_ultrapar.pool.network import Route
from tests.raw_server import BUSY, RawServer


@pytest.fixture
def server():
    """A server that sends raw answers from a list and repeats the last one."""
    answers = [BUSY]

    async def answer(peer, _):
        raw = answers.pop(0) if len(answers) > 1 else answers[0]
        await peer.send(raw)
        peer.close()

    with RawServer(answer) as listening:
        yield f"{listening.url}/metrics", answers


def test_load_is_read_from_the_server(server):
    url, _ = server
    assert ask_load(url, Route()) == ServerLoad(7.0, 3.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"no http at all\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 999\r\n\r\nshort",
        b"HTTP/1.0 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n",
        b"HTTP/1.0 500 No\r\n\r\n",
        b"",
    ],
    ids=["no http", "cut off", "redirect", "error", "nothing"],
)
def test_invalid_answer_gives_no_load(server, answer):
    url, answers = server
    answers[:] = [answer]
    assert ask_load(url, Route()) is None


def test_watch_continues_after_invalid_answers(server, monkeypatch):
    monkeypatch.setattr("pytest_ultrapar.broker.adaptive.server_load.ASK_EVERY_S", 0.01)
    url, answers = server
    answers[:] = [b"no http at all\r\n", b"", BUSY]

    async def go() -> tuple[tuple[str, str], ServerLoad]:
        heard = asyncio.get_running_loop().create_future()

        def tell(place, load):
            if not heard.done():
                heard.set_result((place, load))

        watch = LoadWatch({("p", "i"): (url, Route())}, asyncio.get_running_loop(), tell)
        try:
            return await asyncio.wait_for(heard, 120)
        finally:
            watch.stop()

    assert asyncio.run(go()) == (("p", "i"), ServerLoad(7.0, 3.0))
