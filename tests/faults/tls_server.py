"""An API over TLS whose certificate and protocol a test chooses."""

from __future__ import annotations

import asyncio
import ssl
import threading
from dataclasses import dataclass, field

from tests.faults.byte_faults import completion, response


@dataclass
class TlsServer:
    """A server in a thread of this process.

    Attributes:
        requests: What arrived inside TLS.
    """

    tls: ssl.SSLContext
    port: int = 0
    requests: list[bytes] = field(default_factory=list)

    def __enter__(self) -> TlsServer:  # noqa: PYI034 - nobody derives from it
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
    def base_url(self) -> str:
        return f"https://127.0.0.1:{self.port}/v1"

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listener = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self.tls)
        self.port = listener.sockets[0].getsockname()[1]
        # Handshakes that a client ends are what is tested, not worth a line each.
        self._loop.set_exception_handler(lambda *_: None)
        self._ready.set()
        await self._stop.wait()
        listener.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                writer.write(response(completion("fine")))
        except (asyncio.IncompleteReadError, OSError):
            writer.close()
