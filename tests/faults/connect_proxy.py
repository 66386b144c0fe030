"""A real HTTP proxy on the loopback that makes tunnels, with or without a password."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import dataclass, field

from tests.faults.loopback_server import LoopbackServer


@dataclass
class ConnectProxy(LoopbackServer):
    """A proxy that makes tunnels.

    Attributes:
        user_info: `user:password` that it asks for; None: it lets everybody through.
        tunnels: `host:port` of each tunnel that it made.
        refused: How many it did not make.
    """

    user_info: str | None = None
    tunnels: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
