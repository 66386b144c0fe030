"""The engine's HTTP against a server whose every byte the test decides."""

import asyncio
import errno
import gzip
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import aiohttp
import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.engine.answers import Answer, Pieces, TooLateError, read_answer
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.http import STALE_S, HttpClient, _Address, _body, _failure
from pytest_ultrapar.system.clock import boot_s
from tests.raw_server import RawServer, response

BODY = b'{"model": "m"}'


def endpoint(port: int, token: str = "secret") -> Endpoint:
    return Endpoint("p/i/k", "p", "i", "k", f"http://127.0.0.1:{port}/v1", token, "m", 60.0)


@contextmanager
def server(*answers: bytes | None):
    """Answer the requests with these bytes in turn; None closes, b"" never answers."""
    left = list(answers)

    async def answer(peer, _):
        if left[0]:
            await peer.send(left[0])
        elif left[0] is not None:
            await asyncio.Event().wait()
        if left.pop(0) is None or not left:
            peer.close()

    with RawServer(answer) as one:
        yield one


async def exchange(
    *answers: bytes | None, timeout_s: float = 60.0, **limits: int
) -> tuple[list[Answer | Failure], list[bytes]]:
    with server(*answers) as one:
        there = endpoint(one.port)
        client = HttpClient([there], max_connections=4, **limits)
        try:
            results = [await client.exchange(there, BODY, timeout_s=timeout_s) for _ in answers]
        finally:
            await client.close()
    return results, [request.raw for request in one.requests]


def run(*answers: bytes | None, timeout_s: float = 60.0, **limits: int) -> Answer | Failure:
    return asyncio.run(exchange(*answers, timeout_s=timeout_s, **limits))[0][-1]


def test_exchange_sends_body_and_token_and_reads_status_headers_and_body():
    chunked = b"HTTP/1.1 429 No\r\nRetry-After: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n"
    (first, second), seen = asyncio.run(
        exchange(response(b"hello"), chunked + b"1\r\nc\r\n0\r\n\r\n")
    )
    assert (first.status, first.body) == (200, b"hello")
    assert (second.status, second.headers["retry-after"], second.body) == (429, "3", b"abc")
    for request in seen:
        head, _, body = request.partition(b"\r\n\r\n")
        assert body == BODY
        lines = head.lower().split(b"\r\n")
        assert b"authorization: bearer secret" in lines
        assert b"content-type: application/json" in lines
        assert b"accept: application/json" in lines
        assert b"user-agent: pytest-ultrapar" in lines


def test_large_bodies_are_sent_whole_without_a_warning(recwarn):
    """Such as bodies with images; the content-length is the body's."""

    async def go(body: bytes) -> bytes:
        with server(response(b"")) as one:
            there = endpoint(one.port)
            client = HttpClient([there], max_connections=4)
            try:
                assert (await client.exchange(there, body, timeout_s=60.0)).status == 200
            finally:
                await client.close()
        (request,) = one.requests
        return request.raw

    body = b"x" * 3_000_000
    head, _, sent = asyncio.run(go(body)).partition(b"\r\n\r\n")
    assert sent == body
    assert b"content-length: 3000000" in head.lower()
    assert b"transfer-encoding" not in head.lower()
    assert [str(one.message) for one in recwarn] == []


def test_idle_connection_expires_and_leaves_its_place_to_others():
    place = asyncio.Semaphore(1)
    left: list[str] = []

    async def hold(peer, request):
        async with place:
            while request is not None:
                await peer.send(response(b"served"))
                request = await peer.request()
        left.append("a client")
        peer.close()

    async def two_processes(port: int) -> Answer | Failure:
        there = endpoint(port)
        clients = [HttpClient([there], max_connections=4) for _ in range(2)]
        try:
            for _ in range(3):  # one after another: the connection is used again
                await clients[0].exchange(there, BODY, timeout_s=20)
            assert left == []
            return await clients[1].exchange(there, BODY, timeout_s=20)
        finally:
            for client in clients:
                await client.close()

    with RawServer(hold) as one:
        answer = asyncio.run(two_processes(one.port))
    assert isinstance(answer, Answer), answer
    assert answer.body == b"served"
    assert left[0] == "a client"


def test_most_recent_connection_is_used_first():
    """So that connections which are no longer needed expire."""
    both = asyncio.Event()

    async def answer(peer, _):
        if peer.number == 2:
            both.set()
        await both.wait()
        await peer.send(response(b""))

    async def go() -> None:
        there = endpoint(one.port)
        client = HttpClient([there], max_connections=4)
        try:
            await asyncio.gather(*(client.exchange(there, BODY, timeout_s=20) for _ in range(2)))
            for _ in range(4):
                await client.exchange(there, BODY, timeout_s=20)
        finally:
            await client.close()

    with RawServer(answer) as one:
        asyncio.run(go())
    assert len({request.connection for request in one.requests[2:]}) == 1


async def play(
    port: int, *steps: Callable[[HttpClient, Endpoint], Awaitable[Answer | Failure]]
) -> list[Answer | Failure]:
    """The results of one client, step by step."""
    client = HttpClient([endpoint(port)], max_connections=4)
    try:
        return [await step(client, endpoint(port)) for step in steps]
    finally:
        await client.close()


async def ask(client: HttpClient, there: Endpoint, *, is_fresh: bool = False) -> Answer | Failure:
    return await client.exchange(there, BODY, timeout_s=20, is_fresh=is_fresh)


def test_connection_that_the_server_has_closed_takes_no_request():
    """Even if the loop is busy, and has not seen the end yet."""
    closed = threading.Event()

    async def answer_and_close(peer, _):
        await peer.send(response(b"served"))
        peer.close()
        await peer.writer.wait_closed()
        closed.set()

    async def ask_when_closed(client: HttpClient, there: Endpoint) -> Answer | Failure:
        assert closed.wait(20)
        return await ask(client, there)

    with RawServer(answer_and_close) as one:
        answers = asyncio.run(play(one.port, ask, ask_when_closed))
    assert [getattr(each, "body", each) for each in answers] == [b"served"] * 2


def test_unrequested_bytes_on_an_idle_connection_are_not_an_answer():
    async def answer_twice(peer, _):
        await peer.send(response(b"%d" % len(one.requests)) + response(b"unasked"))

    with RawServer(answer_twice) as one:
        answers = asyncio.run(play(one.port, ask, ask, ask))
    assert [answer.body for answer in answers] == [b"1", b"2", b"3"]


def test_request_that_waits_for_a_connection_may_find_it_closed():
    async def serve_once(peer, request):
        if any(each.connection == peer.number for each in one.requests if each is not request):
            peer.close()
        else:
            await peer.send(response(b"served"))

    async def go() -> list[Answer | Failure]:
        there = endpoint(one.port)
        client = HttpClient([there], max_connections=1)
        try:
            return await asyncio.gather(ask(client, there), ask(client, there))
        finally:
            await client.close()

    with RawServer(serve_once) as one:
        first, second = asyncio.run(go())
    assert (first.body, second.outcome) == (b"served", "closed")


@pytest.mark.parametrize("is_reset", [False, True])
def test_idle_connection_that_breaks_immediately_counts_as_closed(is_reset):
    async def serve_once(peer, request):
        if any(each.connection == peer.number for each in one.requests if each is not request):
            peer.reset() if is_reset else peer.close()
        else:
            await peer.send(response(b"served"))

    with RawServer(serve_once) as one:
        steps = (ask, ask, partial(ask, is_fresh=True))
        first, closed, again = asyncio.run(play(one.port, *steps))
    assert (first.body, again.body) == (b"served", b"served")
    assert (closed.outcome, closed.maybe_billed) == ("closed", True)


@pytest.mark.parametrize("when", ["later", "in the answer", "on a new connection"])
def test_other_broken_connections_fail_the_request(when, monkeypatch):
    async def serve_once(peer, request):
        if len(one.requests) == 1:
            await peer.send(response(b"served"))
            return
        if when == "later":
            monkeypatch.setattr(
                "pytest_ultrapar.engine.http.boot_s", lambda: boot_s() + 2 * STALE_S
            )
        if when == "in the answer":
            await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        peer.reset()

    with RawServer(serve_once) as one:
        second = partial(ask, is_fresh=when == "on a new connection")
        _, failure = asyncio.run(play(one.port, ask, second))
    assert (failure.outcome, failure.maybe_billed) == ("transport", True)


def test_exchange_decodes_what_the_server_encoded():
    answer = run(response(gzip.compress(b"x" * 1000), b"Content-Encoding: gzip"))
    assert answer.body == b"x" * 1000


@pytest.mark.parametrize("encoded", [False, True])
def test_exchange_refuses_an_answer_that_is_too_large_after_decoding(encoded):
    body = b"x" * 5001
    failure = run(
        response(gzip.compress(body), b"content-encoding: gzip") if encoded else response(body),
        largest_bytes=5000,
    )
    assert failure.outcome == "malformed"
    assert "larger than 5000 bytes" in failure.message
    assert run(response(b"x" * 5000), largest_bytes=5000).body == b"x" * 5000


def test_exchange_ends_at_its_deadline():
    failure = run(b"", timeout_s=0.05)
    assert (failure.outcome, failure.maybe_billed) == ("timeout", True)
    assert "within 0.05 s" in failure.message


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, "transport"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", "malformed"),
        (b"?\r\n", "malformed"),
        (response(b"no gzip", b"content-encoding: gzip"), "malformed"),
        (response(b"no brotli", b"content-encoding: br"), "malformed"),
    ],
)
def test_exchange_distinguishes_a_lost_connection_from_invalid_http(answer, outcome):
    failure = run(answer)
    assert (failure.outcome, failure.maybe_billed) == (outcome, True)


@contextmanager
def full_listener():
    """A port that never accepts: the kernel queues only one connection for it."""
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        yield listener.getsockname()[1]


def test_exchange_gives_a_slow_connection_the_class_connect():
    async def go(port: int) -> Answer | Failure:
        # The endpoint's timeout bounds the connection; the exchange's timeout is not reached.
        quick = replace(endpoint(port), timeout_s=0.1)
        client = HttpClient([quick], max_connections=1)
        try:
            return await client.exchange(quick, BODY, timeout_s=60.0)
        finally:
            await client.close()

    with full_listener() as port:
        failure = asyncio.run(go(port))
    assert (failure.outcome, failure.maybe_billed) == ("connect", False)


def test_a_request_that_the_server_does_not_acknowledge_in_time_is_abandoned():
    """Long before the deadline: a late arrival would come on top of later requests."""

    async def go(port: int) -> Answer | Failure:
        client = HttpClient([endpoint(port)], max_connections=1, unheard_s=0.2)
        try:
            # More than the system buffers for a server that reads nothing.
            return await client.exchange(endpoint(port), bytes(32 << 20), timeout_s=20.0)
        finally:
            await client.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        failure = asyncio.run(go(listener.getsockname()[1]))
    assert (failure.outcome, failure.maybe_billed) == ("transport", True)


def test_a_request_that_is_too_old_when_its_connection_is_ready_is_not_sent():
    """The next request uses the connection, and checks only then whether it may be sent."""
    connections: list[object] = []
    written_when_asked: list[int] = []

    async def answer(peer, request):
        if peer not in connections:
            connections.append(peer)
        await peer.send(response(request.raw.rpartition(b"\r\n\r\n")[2]))

    async def go() -> Answer | Failure:
        there = endpoint(one.port)
        client = HttpClient([there], max_connections=4)

        def may_send() -> bool:
            written_when_asked.append(len(one.requests))
            return len(written_when_asked) > 1

        try:
            with pytest.raises(TooLateError):
                await client.exchange(there, b"late", timeout_s=20.0, may_send=may_send)
            return await client.exchange(there, b"sent", timeout_s=20.0, may_send=may_send)
        finally:
            await client.close()

    with RawServer(answer) as one:
        assert asyncio.run(go()).body == b"sent"
    assert [request.raw.endswith(b"sent") for request in one.requests] == [True]
    assert written_when_asked == [0, 0]
    assert len(connections) == 1


async def asked_once(port: int) -> Answer | Failure:
    client = HttpClient([endpoint(port)], max_connections=1)
    try:
        return await client.exchange(endpoint(port), BODY, timeout_s=60.0)
    finally:
        await client.close()


def test_exchange_flags_a_reset_after_sending_as_maybe_billed():
    async def reset(peer, _):
        peer.reset()

    with RawServer(reset) as one:
        failure = asyncio.run(asked_once(one.port))
    assert (failure.outcome, failure.maybe_billed) == ("transport", True)


NAME_ERROR = getattr(aiohttp, "ClientConnectorDNSError", aiohttp.ClientConnectorError)
"""The error for an unknown host name; aiohttp 3.10 has no class for it."""


def there(timeout_s: float = 60.0) -> _Address:
    one = replace(endpoint(1), url="https://h.example/v1", timeout_s=timeout_s)
    return _Address.of(one, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


@pytest.mark.parametrize(
    ("kind", "cause", "said"),
    [
        (
            NAME_ERROR,
            socket.gaierror(-2, "unknown"),
            "the host h.example cannot be found",
        ),
        (
            NAME_ERROR,
            socket.gaierror(socket.EAI_AGAIN, "busy"),
            "the host h.example cannot be found",
        ),
        (
            aiohttp.ClientConnectorError,
            OSError(errno.ECONNREFUSED, "x"),
            "nothing is listening on h.example:443",
        ),
        (
            aiohttp.ClientProxyConnectionError,
            OSError(errno.ECONNREFUSED, "x"),
            "nothing is listening on h.example:443 (the proxy)",
        ),
        (
            aiohttp.ClientConnectorError,
            OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 443)"),
            f"h.example:443 cannot be reached: {os.strerror(errno.EHOSTUNREACH)}",
        ),
    ],
)
def test_reason_for_a_failed_connection_is_in_plain_words(kind, cause, said):
    key = SimpleNamespace(host="h.example", port=443, ssl=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    failure = _failure(kind(key, cause), there())
    assert failure.message == f"cannot connect: {said}"
    # A name server that does not answer now may answer in a moment.
    assert failure.outcome == ("no_host" if cause.errno == -2 else "connect")


def test_connection_timeout_names_the_settings_that_define_it():
    error = aiohttp.ConnectionTimeoutError("Connection timeout to host")
    assert _failure(error, there(timeout_s=20.0)).message == (
        "cannot connect: no connection to h.example within 18 s "
        "(the smaller of 30 s and 90 % of timeout_s)"
    )


def test_exchange_does_not_wait_for_a_body_with_invalid_chunks():
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    left = threading.Event()

    async def answer(peer, _):
        for piece in (head + b"1\r\na\r\n", b"no chunk\r\n"):
            await peer.send(piece)
            await asyncio.sleep(0.02)
        await peer.gone()
        left.set()

    with RawServer(answer) as one:
        failure = asyncio.run(asyncio.wait_for(asked_once(one.port), 120))
        assert left.wait(120)
    assert (failure.outcome, failure.maybe_billed) == ("malformed", True)


# -- streams, detected by their first bytes --------------------------------------------------------

SAID = b'data: {"choices": [{"delta": {"content": "fine"}, "finish_reason": "stop"}]}\n\n'
WHOLE = b'{"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}'
STREAMS = {
    "data": SAID,
    "comment": b": ping\n\n" + SAID,
    "event": b"event: one\nid: 1\n" + SAID,
    "time": b"retry: 5\n\n" + SAID,
    "mark": b"\xef\xbb\xbf" + SAID,
    "blank lines": b"\r\n\n \n" + SAID,
    "all": b"\xef\xbb\xbf\n\n: ping\n\n" + SAID,
}
BODIES = {"plain": WHOLE, "blank lines": b"\n\r\n" * 9 + WHOLE, "mark": b"\xef\xbb\xbf" + WHOLE}


def read_in_pieces(
    body: bytes, n_bytes: int, *, asked: bool = False, kind: str = ""
) -> tuple[Answer, bytes | None]:
    """A body that comes in pieces of this many bytes, and the part passed on as a stream."""
    left = [body[at : at + n_bytes] for at in range(0, len(body), n_bytes)]

    async def readany() -> bytes:
        return left.pop(0) if left else b""

    content = SimpleNamespace(readany=readany)
    came = SimpleNamespace(
        status=200, headers={"content-type": kind}, content=content, content_length=None
    )
    pieces = Pieces() if asked else None
    there = replace(endpoint(1), stream=asked)
    stream, whole = asyncio.run(_body(there, came, 1 << 20, pieces))
    answer = Answer(200, came.headers, whole, 0.0, stream)
    return answer, pieces.take() if pieces is not None else None


@pytest.mark.parametrize("kind", ["", "text/event-stream"])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("n_bytes", [1, 3, 1000])
@pytest.mark.parametrize("name", STREAMS)
def test_stream_is_detected_with_any_beginning_and_any_cut(name, n_bytes, asked, kind):
    answer, handed = read_in_pieces(STREAMS[name], n_bytes, asked=asked, kind=kind)
    assert answer.stream is not None
    assert read_answer(answer, endpoint(1), 1.0).text == "fine"
    assert handed == (STREAMS[name] if asked else None)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("n_bytes", [1, 3, 1000])
@pytest.mark.parametrize("name", BODIES)
def test_whole_answer_is_not_a_stream_with_any_content_type_and_any_cut(name, n_bytes, asked, kind):
    answer, handed = read_in_pieces(BODIES[name], n_bytes, asked=asked, kind=kind)
    assert answer.stream is None
    assert read_answer(answer, endpoint(1), 1.0).text == "fine"
    assert not handed
