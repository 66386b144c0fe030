"""The tests' own server besides the simulator: HTTP/1.1 by hand, so that every byte can be wrong.

A function `answer(peer, request)`, called for each request, sends the answer. The server shares no
code with the simulator, so that the two cannot share a misunderstanding. `scripted_server` is this
server for whole pytest runs, in which the prompt selects the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

BUSY = b"HTTP/1.0 200 OK\r\n\r\nvllm:num_requests_running 7\nvllm:num_requests_waiting 3\n"
"""vLLM's metrics about its load."""
_AT_ONCE = 65536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it arrived.

    Attributes:
        raw: All of its bytes.
        headers: The headers, by name in lower case.
        connection: The number of its connection, from 1.
    """

    raw: bytes
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """A client's connection.

    Attributes:
        number: Its number, from 1.
        status: The HTTP status of the answer to its last request, if one was begun.
        doomed: Whether the server ends it when it is used again.
    """

    def __init__(
        self,
        sock: socket.socket,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._sock = sock
        self.number = number
        self.reader = reader
        self.writer = writer
        self.status: int | None = None
        self.doomed = False

    @property
    def is_closed(self) -> bool:
        return self.writer.is_closing()

    async def request(self) -> Request | None:
        """The next request, or None at the end of the connection."""
        self.status = None
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head[:-4].decode("latin-1").split("\r\n")
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        except asyncio.IncompleteReadError:
            return None
        method, target, _ = first.split(" ")
        return Request(head + body, method, target, headers, body, self.number)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if self.status is None and piece.startswith(b"HTTP/1.1 "):
                self.status = int(piece[9:12])
            self.writer.write(piece)
            await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the client closes."""
        with contextlib.suppress(OSError):
            while await self.reader.read(_AT_ONCE):
                pass

    def has_left(self) -> bool:
        """Whether the client has closed its side, even if the event loop has not noticed it."""
        if self.is_closed or self.reader.at_eof():
            return True
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.writer.transport.abort()

    def half_close(self) -> None:
        """Send FIN and continue to listen."""
        self.writer.write_eof()

    def close(self) -> None:
        """Close the connection once all data is sent."""
        self.writer.close()


class RawServer:
    """A server on the loopback, in its own thread and loop, during a `with` block.

    Attributes:
        requests: All complete requests, in order.
    """

    def __init__(
        self,
        answer: Callable[[Peer, Request], Awaitable[object]],
        *,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[Request] = []
        self._answer = answer
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    @property
    def url(self) -> str:
        return f"http{'s' * bool(self._tls)}://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all connections and stop listening.

        Raises:
            OSError: It could not accept more connections, so it had ended by itself.
        """
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()
        with contextlib.suppress(asyncio.CancelledError):
            self._accepting.result()

    async def _serve(self) -> None:
        if self._tls is not None:
            # Tests end handshakes on purpose; do not print a line for each.
            self._loop.set_exception_handler(lambda *_: None)
        stopped = self._loop.create_task(self._stopped.wait())
        self._accepting = self._loop.create_task(self._accept())
        await asyncio.wait({stopped, self._accepting}, return_when=asyncio.FIRST_COMPLETED)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        # Otherwise open connections would cause warnings when the loop is gone.
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)

    async def _accept(self) -> None:
        talks: set[asyncio.Task[None]] = set()
        number = 0
        while True:
            sock, _ = await self._loop.sock_accept(self._listener)
            number += 1
            task = self._loop.create_task(self._talk(sock, number))
            talks.add(task)
            task.add_done_callback(talks.discard)

    async def _talk(self, sock: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            # As `asyncio.start_server` does, but with access to the socket.
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=self._tls
            )
            self._transports.add(transport)
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            peer = Peer(sock, number, reader, writer)
            try:
                while not peer.is_closed and (request := await peer.request()) is not None:
                    self.requests.append(request)
                    await self._answer(peer, request)
            finally:
                peer.close()


def response(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    head = [b"HTTP/1.1 " + status, *headers, b"content-length: %d" % len(body)]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def json_response(answer: object, *headers: bytes, status: int = 200) -> bytes:
    """A complete, valid answer of an API."""
    body = json.dumps(answer).encode()
    return response(
        body, b"content-type: application/json", *headers, status=b"%d Scripted" % status
    )
