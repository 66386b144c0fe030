"""What is sent for an admitted request, and how it ends: whole, in pieces, or broken off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, ClassVar, Literal

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


Ending = Literal["complete", "silence", "close"]


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


Answer = Whole | Pieces


async def respond(send: Send, whole: Whole) -> None:
    """Send a whole response, JSON unless its headers say otherwise."""
    sent = [*whole.headers, (b"content-length", b"%d" % len(whole.body))]
    if not any(name == b"content-type" for name, _ in whole.headers):
        sent.append(_JSON)
    await send({"type": "http.response.start", "status": whole.status, "headers": sent})
    await send({"type": "http.response.body", "body": whole.body})


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
