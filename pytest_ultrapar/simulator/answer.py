"""The response to an admitted request: sent whole or in pieces, complete or broken off."""

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
"""The key, in ASGI's scope, of the callback that is called if the client disconnects."""
CLOSE = "ultrapar.close"
"""The key, in ASGI's scope, of the function that closes the connection."""
_JSON: Header = (b"content-type", b"application/json")


async def read_body(receive: Receive, *, limit_bytes: int) -> bytes | None:
    """Read the request's body, but stop after the piece with which it exceeds `limit_bytes`.

    Returns:
        The body; a result longer than `limit_bytes` means that the body is too long. None means
        that the client disconnected before the end of the body.
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
    """A body that is sent in one piece, after the whole latency.

    Attributes:
        status: HTTP status.
        headers: All headers except content-length, and except content-type if the body is JSON.
        begins: The share of the latency that passes before the answer begins.
    """

    body: bytes
    status: int = 200
    headers: tuple[Header, ...] = ()
    begins: ClassVar[float] = 1.0


class Pieces(msgspec.Struct, frozen=True):
    """A body that is sent in pieces, each after its share of the latency.

    Attributes:
        status: HTTP status; None means that nothing is sent before the ending.
        headers: All headers.
        ending: `complete` ends the body, `silence` never ends it, `close` closes the connection.
    """

    status: int | None
    headers: tuple[Header, ...]
    pieces: tuple[Piece, ...]
    ending: Ending = "complete"

    @property
    def begins(self) -> float:
        """The share of the latency before the first piece; without pieces, the whole latency."""
        return self.pieces[0][0] if self.pieces else 1.0


Answer = Whole | Pieces


async def respond(send: Send, whole: Whole) -> None:
    """Send a whole response. Its type is JSON unless its headers set another type."""
    sent = [*whole.headers, (b"content-length", b"%d" % len(whole.body))]
    if not any(name == b"content-type" for name, _ in whole.headers):
        sent.append(_JSON)
    await send({"type": "http.response.start", "status": whole.status, "headers": sent})
    await send({"type": "http.response.body", "body": whole.body})


NEVER = Pieces(None, (), ((float("inf"), b""),))
"""The answer that is never sent: no status, no body and no end."""


def broken_off(answer: Answer, ending: Ending) -> Pieces:
    """Return an answer's status, its headers and the first half of its body, with this ending."""
    if isinstance(answer, Pieces):
        half = max(1, len(answer.pieces) // 2)
        return Pieces(answer.status, answer.headers, answer.pieces[:half], ending)
    length = (b"content-length", b"%d" % len(answer.body))
    headers = ((b"content-type", b"application/json"), length, *answer.headers)
    return Pieces(answer.status, headers, ((1.0, answer.body[: len(answer.body) // 2]),), ending)
