"""The broker in a separate process: `python -m pytest_ultrapar.broker.server`.

It has a process of its own because a thread in the controller would compete with xdist's loop for
the interpreter lock. The process reads its `ServerConfig` from the first line of its standard
input, and ends when this input ends. The controller holds the other end of the pipe, so the broker
ends even if the controller is killed.
"""

from __future__ import annotations

import asyncio
import hmac
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from pytest_ultrapar.broker import wire
from pytest_ultrapar.broker.event_loop import BrokerLoop
from pytest_ultrapar.broker.process import READY_LINE, ServerConfig
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.system.clock import Clock, MonotonicClock
from pytest_ultrapar.system.parent import parent_gone, tell_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.broker.protocol import Action


class BrokerServer:
    """Delivers the decisions of one `LaneBroker` to its clients, on an event loop in one thread."""

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        on_broken: Callable[[], object] = lambda: None,
    ) -> None:
        """Start without connections.

        Args:
            config: The configuration that the controller sent.
            clock: Source of all times.
            loop: The event loop on which the server runs.
            on_broken: Called if the broker fails and cannot serve any more requests.

        Raises:
            ConfigError: A file that counts a daily limit cannot be read or trusted.
        """
        self._token = config.token.encode()
        self._host = BrokerLoop(
            config.settings, clock, loop, carry_out=self._tell, on_broken=lambda _: on_broken()
        )
        self._broker = self._host.broker
        self._connections: dict[str, Connection] = {}
        self._unflushed: dict[Connection, None] = {}

    def connection(self) -> Connection:
        """Create the protocol object for one new connection."""
        return Connection(self)

    def knows(self, token: str) -> bool:
        """Whether a token is correct. The check takes the same time for all wrong tokens."""
        return hmac.compare_digest(token.encode(), self._token)

    def welcome(self, connection: Connection, hello: wire.Hello) -> None:
        """Accept a client.

        Raises:
            ValueError: The client has no name, or a worker with that name is already connected.
        """
        if not hello.worker:
            raise ValueError("a client must have a name")
        if hello.role == "worker":
            actions = self._broker.connect(hello.worker, self._host.now_s())
            self._connections[hello.worker] = connection
            self._carry_out(actions)
        self.answer(connection, wire.Welcome())

    def handle(self, connection: Connection, message: wire.ClientMessage, now_s: float) -> None:
        """Carry out a message from a client that has been accepted.

        Raises:
            ValueError: The client's role or the state of its requests does not allow the message.
        """
        if not isinstance(message, wire.MAY_SAY[connection.role]):
            raise ValueError(f"a {connection.role} may not send {type(message).__name__} now")  # noqa: TRY004 - of the right type, at the wrong time
        answer: wire.Answer | None
        if isinstance(message, wire.AskSigns):
            answer = wire.Signs({name: one.heard_s for name, one in self._connections.items()})
            actions: list[Action] = []
        else:
            # A controller is not a worker: it ends a case, but does not close a worker's episode.
            who = connection.worker if connection.role == "worker" else ""
            answer, actions = self._broker.handle(who, message, now_s)
        if answer is not None:
            self.answer(connection, answer)
        self._carry_out(actions)

    def now_s(self) -> float:
        """The current time, on the clock that the clients also use."""
        return self._host.now_s()

    def gone(self, connection: Connection) -> None:
        """Remove the worker whose connection has ended, and take back that worker's leases."""
        self._unflushed.pop(connection, None)
        if self._connections.get(connection.worker) is connection:
            del self._connections[connection.worker]
            self._carry_out(self._broker.disconnect(connection.worker, self._host.now_s()))
            self.flush()

    def answer(self, connection: Connection, message: wire.ServerMessage) -> None:
        """Queue a message. The next `flush` sends it."""
        wire.append_frame(connection.outgoing, message)
        self._unflushed[connection] = None

    def flush(self) -> None:
        """Send the queued messages, with one write per connection, and set the timer."""
        while self._unflushed:
            unflushed, self._unflushed = self._unflushed, {}
            for connection in unflushed:
                connection.flush()
        self._host.arm()

    def close(self) -> None:
        """Stop serving, and write the part of the history that has not been written yet."""
        self._host.close()

    def _tell(self, actions: list[Action]) -> None:
        self._carry_out(actions)
        self.flush()

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            self.answer(self._connections[action.worker], action)


class Connection(asyncio.Protocol):
    """One client. If it sends a forbidden message, only this connection is closed.

    Attributes:
        worker: The client's name; empty before the handshake.
        role: The client's role, which determines which messages it may send.
        heard_s: When the client last sent data, on the server's clock.
        outgoing: Frames that have not been written yet.
    """

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._reader = wire.FrameReader()
        self._decoder = msgspec.msgpack.Decoder(wire.ClientMessage)
        self._transport: asyncio.Transport | None = None
        self._is_welcome = False
        self.worker = ""
        self.role: wire.Role = "worker"
        self.heard_s = server.now_s()
        self.outgoing = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport. The event loop calls this.

        Only processes of the same user can connect.
        """
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Handle all frames from one read as simultaneous, and send the answers in one write."""
        self._reader.feed(data)
        now_s = self.heard_s = self._server.now_s()
        try:
            while (frame := self._reader.next_frame()) is not None:
                message = self._decoder.decode(frame)
                if self._is_welcome:
                    self._server.handle(self, message, now_s)
                else:
                    self._greet(message)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._drop()
        self._server.flush()

    def eof_received(self) -> bool:
        """Handle the end of the client's input at once. The event loop calls this.

        The transport only reports the end of the connection later.
        """
        self._server.gone(self)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection. The event loop calls this."""
        self._transport = None
        self._server.gone(self)

    def flush(self) -> None:
        """Write the queued frames."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(bytes(self.outgoing))
        self.outgoing.clear()

    def _greet(self, message: wire.ClientMessage) -> None:
        if not (isinstance(message, wire.Hello) and self._server.knows(message.token)):
            raise ValueError("the first frame must be a Hello with the token")
        self._server.welcome(self, message)
        self._is_welcome = True
        self.worker, self.role = message.worker, message.role

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._server.gone(self)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - absent on some systems
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(config: ServerConfig) -> None:
    loop = asyncio.get_running_loop()
    is_over = asyncio.Event()
    server = BrokerServer(config, MonotonicClock(), loop, on_broken=is_over.set)
    listener = await loop.create_unix_server(server.connection, config.socket_path, backlog=1024)
    watching = asyncio.ensure_future(parent_gone())
    watching.add_done_callback(lambda _: is_over.set())
    tell_parent(READY_LINE)
    await is_over.wait()
    listener.close()
    server.close()


def main() -> None:
    """Serve until the standard input ends."""
    # Ctrl-C reaches the whole process group; only the controller reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServerConfig)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        try:
            runner.run(_serve(config))
        except ConfigError as error:
            # Instead of the ready line, send a sentence for the user, without a traceback.
            tell_parent(f"{error}\n".encode())
    shutil.rmtree(Path(config.socket_path).parent, ignore_errors=True)


if __name__ == "__main__":
    main()
