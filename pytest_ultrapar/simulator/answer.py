"""What is sent for an admitted request, and how it ends: whole, in pieces, or broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from pytest_ultrapar.simulator.stream import Piece

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]
ON_DEPARTURE = "ultrapar.on_departure"
"""Where the application puts into the scope what is to be called when the client leaves."""
CLOSE = "ultrapar.close"
"""Where the connection puts into the scope what closes it."""
_JSON: Header = (b"content-type", b"application/json")


async def read_body(receive: Receive, *, limit_bytes: int) -> bytes | None:
    """The request's body, read no further than the first piece beyond `limit_bytes`.

    Returns:
        The body, longer than `limit_bytes` when it is too long; None when the client left before
        its end.
    """
    message = await receive()
    if message["type"] != "http.request":
        return None
    body: bytes = message.get("body", b"")
    while message.get("more_body", False) and len(body) <= limit_bytes:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
    return body


async def respond(send: Send, status: int, body: bytes, headers: Sequence[Header]) -> None:
    """Send a whole response, JSON unless the headers say otherwise."""
    sent = [*headers, (b"content-length", b"%d" % len(body))]
    if not headers or not any(name == b"content-type" for name, _ in headers):
        sent.append(_JSON)
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


Ending = Literal["complete", "silence", "close"]


class Sending(Protocol):
    """The connection that an answer goes to, with its time."""

    send: Send

    def wait_s(self, share: float) -> float:
        """Seconds until so much of the latency has passed; 0 or less when it has."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Whole(msgspec.Struct, frozen=True):
    """A body sent at once, when all of the latency has passed.

    Attributes:
        status: HTTP status.
        headers: Beyond content-length, and content-type where it is JSON.
        begins: The share of the latency after which it begins.
    """

    body: bytes
    status: int = 200
    headers: tuple[Header, ...] = ()
    begins: ClassVar[float] = 1.0

    async def deliver(self, sending: Sending) -> None:
        """Send it."""
        await respond(sending.send, self.status, self.body, self.headers)


class Pieces(msgspec.Struct, frozen=True):
    """A body sent in pieces, each when its share of the latency has passed.

    Attributes:
        status: None sends nothing but the ending.
        headers: All of them.
        ending: `complete` ends it well, `silence` never does, `close` closes the connection.
    """

    status: int | None
    headers: tuple[Header, ...]
    pieces: tuple[Piece, ...]
    ending: Ending = "complete"

    @property
    def begins(self) -> float:
        """The share of the latency after which it begins: the first piece's, else all of it."""
        return self.pieces[0][0] if self.pieces else 1.0

    async def deliver(self, sending: Sending) -> None:
        """Send it; ends only by cancellation when its ending is silence."""
        if self.status is not None:
            head = {
                "type": "http.response.start",
                "status": self.status,
                "headers": list(self.headers),
            }
            await sending.send(head)
        for share, content in self.pieces:
            if (wait_s := sending.wait_s(share)) > 0:
                await asyncio.sleep(wait_s)
            await sending.send({"type": "http.response.body", "body": content, "more_body": True})
        if self.ending == "complete":
            await sending.send({"type": "http.response.body"})
        elif self.ending == "close":
            sending.close()
        else:
            await asyncio.get_running_loop().create_future()


Answer = Whole | Pieces
NEVER = Pieces(None, (), ((float("inf"), b""),))
"""No answer at all."""


def broken_off(answer: Answer, ending: Ending) -> Pieces:
    """The first half of an answer, head included, and then another ending."""
    if isinstance(answer, Pieces):
        half = max(1, len(answer.pieces) // 2)
        return Pieces(answer.status, answer.headers, answer.pieces[:half], ending)
    length = (b"content-length", b"%d" % len(answer.body))
    headers = ((b"content-type", b"application/json"), length, *answer.headers)
    return Pieces(answer.status, headers, ((1.0, answer.body[: len(answer.body) // 2]),), ending)
