"""An API over TLS whose certificate and protocol a test chooses."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

from tests.faults.byte_faults import completion, response
from tests.faults.loopback_server import LoopbackServer


@dataclass
class TlsServer(LoopbackServer):
    """A server that answers everything with one completion.

    Attributes:
        requests: What arrived inside TLS.
    """

    tls: ssl.SSLContext
    requests: list[bytes] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"https://127.0.0.1:{self.port}/v1"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                writer.write(response(completion("fine")))
        except (asyncio.IncompleteReadError, OSError):
            writer.close()
