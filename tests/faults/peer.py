"""One connection of a faulty server: HTTP/1.1 by hand, so that every byte can be wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from dataclasses import dataclass

_AT_ONCE = 65536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says.

    Attributes:
        prompt: The text of its last message.
        nth: How often this prompt has come, this time included.
        words: The prompt without its first word.
        t_s: Seconds since the server's first request.
    """

    prompt: str
    token: str
    model: str
    nth: int = 1
    words: str = ""
    t_s: float = 0.0


class Peer:
    """A client's connection, as a bare socket on the running loop."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self.status: int | None = None
        self.doomed = False
        self._loop = asyncio.get_running_loop()
        self._unread = b""

    @property
    def is_closed(self) -> bool:
        return self.sock.fileno() < 0

    async def read_request(self) -> Asked | None:
        """The next request, or None when there will be none."""
        self.status = None
        while b"\r\n\r\n" not in self._unread:
            if not await self._more():
                return None
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        }
        length = int(headers[b"content-length"])
        while len(self._unread) < length:
            if not await self._more():
                return None
        body, self._unread = json.loads(self._unread[:length]), self._unread[length:]
        token = headers[b"authorization"].removeprefix(b"Bearer ").decode()
        return Asked(body["messages"][-1]["content"], token, body["model"])

    async def _more(self) -> bool:
        received = await self._loop.sock_recv(self.sock, _AT_ONCE)
        self._unread += received
        return bool(received)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if self.status is None and piece.startswith(b"HTTP/1.1 "):
                self.status = int(piece[9:12])
            await self._loop.sock_sendall(self.sock, piece)

    async def gone(self) -> None:
        """Wait until the client closes."""
        with contextlib.suppress(OSError):
            while await self._loop.sock_recv(self.sock, _AT_ONCE):
                pass

    def has_left(self) -> bool:
        """Whether the client has closed its side by now."""
        if self.is_closed:
            return True
        try:
            return not self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.sock.close()

    def half_close(self) -> None:
        """Send FIN and go on listening."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()
