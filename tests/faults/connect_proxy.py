"""A real HTTP proxy on the loopback that makes tunnels, with or without a password."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from dataclasses import dataclass, field


@dataclass
class ConnectProxy:
    """A proxy in a thread of this process.

    Attributes:
        user_info: `user:password` that it asks for; None: it lets everybody through.
        tunnels: `host:port` of each tunnel that it made.
        refused: How many it did not make.
    """

    user_info: str | None = None
    port: int = 0
    tunnels: list[str] = field(default_factory=list)
    refused: int = 0

    def __enter__(self) -> ConnectProxy:  # noqa: PYI034 - nobody derives from it
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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listener = await asyncio.start_server(self._tunnel, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        listener.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError), contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split("\r\n")[0].split(" ")
            if method != "CONNECT" or not self._is_welcome(head):
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            host, _, port = target.rpartition(":")
            there, out = await asyncio.open_connection(host, int(port))
            self.tunnels.append(target)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with contextlib.closing(out):
                await asyncio.gather(_pump(reader, out), _pump(there, writer))

    def _is_welcome(self, head: str) -> bool:
        if self.user_info is None:
            return True
        expected = base64.b64encode(self.user_info.encode()).decode()
        return f"\r\nproxy-authorization: basic {expected}\r\n".lower() in head.lower()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()
