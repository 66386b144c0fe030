"""A server on the loopback, in a thread and loop of its own, while a `with` block lasts."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Self


class LoopbackServer:
    """Serves each connection by `answer`; a class derived from it says how, and perhaps over TLS.

    Attributes:
        port: Where it listens, once the block has begun.
        tls: For https; None for none.
    """

    port: int = 0
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        listener = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self.tls)
        self.port = listener.sockets[0].getsockname()[1]
        if self.tls is not None:
            # Handshakes that a client ends are what is tested, not worth a line each.
            self._loop.set_exception_handler(lambda *_: None)
        self._ready.set()
        await self._stop.wait()
        listener.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        # What is still open would be missed, and warned of, when the loop is gone.
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self.answer(reader, writer)
