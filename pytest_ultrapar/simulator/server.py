"""The simulated provider's HTTP server: uvicorn with httptools and uvloop around `Simulator`.

`aiohttp.web` would save two dependencies. But a request takes 13 to 18 % more CPU with its
low-level server and 37 to 52 % more with an `Application` (51 us with uvicorn; 60 and 78 us with
`aiohttp.web`). That matters because the server shares the machine with the code that is measured.
(Measured with the same answers after 2 ms, on 50 connections, in two series of five alternating
rounds.) `aiohttp.web` also reports a client's FIN one turn of the event loop later; see
`Connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.simulator.answer import CLOSE, ON_DEPARTURE, Scope
from pytest_ultrapar.simulator.app import Simulator
from pytest_ultrapar.simulator.faults.timeline import Timeline
from pytest_ultrapar.simulator.log import LogFile
from pytest_ultrapar.simulator.served_pool import served_providers
from pytest_ultrapar.system.clock import MonotonicClock
from pytest_ultrapar.system.files import cannot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pytest_ultrapar.simulator.server_settings import Settings


class Connection(HttpToolsProtocol):
    """Handles the client's FIN in the callback that reports it.

    uvicorn waits for `connection_lost` (its `HttpToolsProtocol.eof_received` does nothing). uvloop
    calls `connection_lost` one turn of the loop later, and then a task must wake up. Until then,
    the server would treat requests on other connections as if the disconnected client still held
    its seat. The kernel does not report connections in order either: a connection that was active
    in the last turn comes first. In each turn, all callbacks run before all tasks, so a seat that
    is freed here is free for every task in that turn.
    """

    def on_message_begin(self) -> None:
        """Prepare the scope. The parser calls this at the first byte of a request."""
        super().on_message_begin()
        cast("Scope", self.scope)[CLOSE] = self.transport.close

    def eof_received(self) -> None:
        """Free the seat. The event loop calls this when the client has closed its side."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return
        scope = cast("Scope", cycle.scope)
        if (leave := scope.get(ON_DEPARTURE)) is not None:
            leave()
        cycle.disconnected = True
        cycle.message_event.set()


HOST = "127.0.0.1"
FLUSH_EVERY_S = 0.05
_BACKLOG = 2048
_KEEP_ALIVE_S = 75
"""How long the server keeps an idle connection. The plugin's client keeps it for only 60 s, so the
server never closes a connection while a request is on its way."""


class Server:
    """A server that listens as soon as it is constructed, and answers requests during `run`."""

    def __init__(self, settings: Settings) -> None:
        """Check the settings, open the port and begin the log.

        Raises:
            ConfigError: The port is taken, the log cannot be created, or the pool cannot be served.
            ResultsError: The log cannot be written.
        """
        clock = MonotonicClock()
        script = settings.faults
        timeline = Timeline(clock.now_s() if script.since == "start" else None)
        providers = served_providers(
            settings.pool, settings.tokens, script=script, timeline=timeline
        )
        self._listener = _listen(settings.port)
        self.port: int = self._listener.getsockname()[1]
        self._log = _open_log(settings, clock.now_s())
        self._app = Simulator(
            providers.values(), log=self._log, clock=clock, timeline=timeline, script=script
        )

    def run(self, until: Callable[[], Awaitable[None]]) -> None:
        """Call `until`, and serve until the awaitable that it returned is done.

        The awaitable runs on the server's event loop. Requests that are in flight when it is done
        get no answer, and the log contains no `end` for them.

        Raises:
            ResultsError: The log cannot be written.
        """
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run(until))

    async def _run(self, until: Callable[[], Awaitable[None]]) -> None:
        config = uvicorn.Config(
            self._app,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            backlog=_BACKLOG,
        )
        uvicorn_server = _Uvicorn(config)
        # All these objects live until the end. Without this call, a garbage collection stops the
        # loop for 3 ms.
        gc.freeze()
        work = [
            asyncio.ensure_future(until()),
            asyncio.ensure_future(self._flush_for_ever()),
            asyncio.ensure_future(uvicorn_server.serve(sockets=[self._listener])),
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            self._log.flush()
            # Otherwise uvicorn answers 500 to requests in flight, as if the provider had failed.
            for connection in uvicorn_server.server_state.connections:
                connection.transport.abort()

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            self._log.flush()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: the caller of `run` decides when the server ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "a port must be from 0 to 65535"
        refuse(
            f"cannot serve on {HOST}:{port}: {reason}; choose another port, or 0 for any free port"
        )
    return listener


def _open_log(settings: Settings, now_s: float) -> LogFile:
    path = settings.log_path or os.devnull
    with cannot(f"write the server's log {path}", error=ConfigError):
        return LogFile(Path(path), settings.pool.limits.values(), now_s)
