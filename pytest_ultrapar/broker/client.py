"""A client of the broker's process, for workers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pytest_ultrapar.broker import debug_log, wire
from pytest_ultrapar.broker.interface import BrokerInterface
from pytest_ultrapar.broker.protocol import Grant, Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.broker.protocol import Lease, LeaseRequest


HANDSHAKE_S = 10.0


async def connect_broker(path: str | Path, token: str, worker: str) -> BrokerClient:
    """Connect to the broker's process as a worker.

    Args:
        path: The path of the broker's socket.
        token: The broker's token.
        worker: The name of this process in assignments. Each name can have only one connection.

    Raises:
        ConnectionError: No broker listens on the socket, or the broker does not accept the token
            and the name within `HANDSHAKE_S` seconds.
    """
    loop = asyncio.get_running_loop()
    try:
        _, client = await loop.create_unix_connection(lambda: BrokerClient(loop), str(path))
    except OSError as error:
        why = error.strerror or error
        raise ConnectionError(f"no broker is listening at {path}: {why}") from error
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            await client.ask(wire.Hello(token, worker, "worker"))
    except (TimeoutError, ConnectionError) as error:
        await client.close()
        raise ConnectionError(
            f"the broker at {path} refused {worker!r}: the token is wrong or the name is in use"
        ) from error
    client.give_signs()
    return client


class BrokerClient(BrokerInterface, asyncio.Protocol):
    """A `BrokerInterface` over a Unix socket. Use `connect_broker` to create one.

    The messages of one iteration of the event loop are collected and leave in a single write. Only
    `SentLate` does not wait for this: it is written at once, together with the messages collected
    before it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._reader = wire.FrameReader()
        self._decoder = msgspec.msgpack.Decoder(wire.ServerMessage)
        self._transport: asyncio.WriteTransport | None = None
        self._outgoing = bytearray()
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._lost: str | None = None

    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """Request a lease and return a future for it. Cancel the future to withdraw the request."""
        future: asyncio.Future[Lease] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(ConnectionError(self._lost))
            return future
        self._leases[request.request_id] = future
        future.add_done_callback(lambda done: self._withdraw(request.request_id, done))
        self._send(wire.Acquire(request))
        if debug_log.is_on():
            debug_log.tell_lease(request, future)
        return future

    def tell(self, message: wire.ClientMessage) -> None:
        """Send a message that needs no answer."""
        self._send(message)
        if isinstance(message, wire.SentLate):
            # The request is sent in this iteration of the event loop.
            self._flush()

    def ask(self, message: wire.ClientMessage) -> asyncio.Future[Any]:
        """Send a message, and return a future for the answer."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(ConnectionError(self._lost))
        else:
            self._asked.append(future)
            self._send(message)
        return future

    def give_signs(self) -> None:
        """Send a heartbeat now and every `wire.SIGN_S` seconds until the connection ends.

        While the event loop is blocked, no heartbeats are sent.
        """
        if self._lost is None:
            self._send(wire.Alive())
            self._loop.call_later(wire.SIGN_S, self.give_signs)

    async def close(self) -> None:
        """Close the connection. The broker takes its leases back, and pending futures fail."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._lose("the connection to the broker was closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport. The event loop calls this."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Handle messages from the broker. The event loop calls this."""
        self._reader.feed(data)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._receive(self._decoder.decode(frame))
        except (msgspec.MsgspecError, ValueError):
            if self._transport is not None:
                self._transport.abort()
            self._lose("the broker sent a message that this version cannot read")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all futures, because the broker is gone. The event loop calls this."""
        self._lose(f"the broker is gone: {exc}" if exc else "the broker is gone")

    def _receive(self, message: wire.ServerMessage) -> None:
        match message:
            case Grant() | Refusal():
                self._carry_out(message)
            case answer:
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_result(answer)

    def _send(self, message: wire.ClientMessage) -> None:
        if self._lost is not None:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        wire.append_frame(self._outgoing, message)

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(bytes(self._outgoing))
        self._outgoing.clear()

    def _lose(self, reason: str) -> None:
        if self._lost is not None:
            return
        self._lost = reason
        self._fail_all(reason)
        while self._asked:
            asked = self._asked.popleft()
            if not asked.done():
                asked.set_exception(ConnectionError(reason))
