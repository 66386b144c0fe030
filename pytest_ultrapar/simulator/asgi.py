"""The few ASGI messages that the server needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

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
