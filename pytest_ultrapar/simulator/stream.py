"""Streamed answers: the pieces of a text, when to send them, and the framing of events.

Source: the HTML standard, section 9.2 (server-sent events).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAM_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"),)
FIRST_SHARE = 0.25
"""The share of the latency before the first piece is sent."""
TEXT_PIECES = 4  # each takes a timer and a write: 20 us of CPU
ARGUMENT_PIECES = 2

Piece = tuple[float, bytes]
"""A part of an answer: the share of the latency after which it is sent, 0 to 1, and its bytes."""


def spread(events: Sequence[bytes]) -> tuple[Piece, ...]:
    """Spread a stream's events over the latency; the last event is due at the end."""
    last = len(events) - 1
    if not last:
        return ((1.0, events[0]),)
    return tuple(
        (FIRST_SHARE + (1 - FIRST_SHARE) * n / last, content) for n, content in enumerate(events)
    )


def as_event(content: bytes, name: str | None = None) -> bytes:
    """Write one event of a stream, with a name if the API names its events."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + content + b"\n\n"


def cut(text: str, n_pieces: int) -> list[str]:
    """Cut a text into at most `n_pieces` pieces; no piece is empty."""
    length = max(1, -(-len(text) // n_pieces))
    return [text[start : start + length] for start in range(0, len(text), length)]
