"""A completion in pieces: the same text, calls and usage as whole, as server-sent events.

Source: OpenAI's chat-completion chunks; the framing is that of the HTML standard, section 9.2
(server-sent events): `data: `, one JSON document, an empty line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.simulator.completion import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.apis.reply import ToolCall
    from pytest_ultrapar.simulator.persona import PersonaReply

STREAM_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"),)
FIRST_SHARE = 0.25
"""The part of the whole latency after which the first piece is sent."""
_TEXT_PIECES = 4  # each is a timer and a write: 20 us of CPU
_ARGUMENT_PIECES = 2

Piece = tuple[float, bytes]
"""Which share of the latency has passed when it is sent, 0 to 1, and its bytes."""


class _FunctionDelta(msgspec.Struct, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct, omit_defaults=True):
    index: int
    function: _FunctionDelta
    id: str | None = None
    type: str | None = None


class _Delta(msgspec.Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct):
    index: int
    delta: _Delta
    finish_reason: str | None


class _Chunk(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[_Choice]


class _ChunkWithUsage(_Chunk):
    usage: Usage | None


_encoder = msgspec.json.Encoder()


def stream_pieces(
    reply: PersonaReply,
    *,
    usage: Usage | None,
    api_name: str,
    name: str,
) -> tuple[Piece, ...]:
    """The pieces of a completion, in order; the last one is due with the whole latency.

    Args:
        reply: What the persona said.
        usage: Its tokens, told in a last chunk without any choice; None tells none.
        api_name: The model as the request named it.
        name: What makes the completion's id.
    """
    head = (f"chatcmpl-{name}", "chat.completion.chunk", 0, api_name)

    def event(choices: list[_Choice], told: Usage | None = None) -> bytes:
        chunk = _Chunk(*head, choices) if usage is None else _ChunkWithUsage(*head, choices, told)
        return as_event(_encoder.encode(chunk))

    events = [event([_Choice(0, delta, None)]) for delta in _deltas(reply)]
    events.append(event([_Choice(0, _Delta(), reply.finish_reason)]))
    if usage is not None:
        events.append(event([], usage))
    events[-1] += as_event(b"[DONE]")
    last = len(events) - 1
    return tuple(
        (FIRST_SHARE + (1 - FIRST_SHARE) * n / last, content) for n, content in enumerate(events)
    )


def as_event(content: bytes) -> bytes:
    """One event of a stream."""
    return b"data: " + content + b"\n\n"


def _deltas(reply: PersonaReply) -> Iterator[_Delta]:
    """What is added piece by piece: who speaks, the text, each call's head and its arguments."""
    calls = reply.tool_calls or ()
    if calls and not reply.content:
        # A message of calls alone has no text; the role comes with the first call.
        yield _Delta("assistant", tool_calls=[_call_head(0, calls[0])])
    else:
        yield _Delta("assistant", "")
        for text in _cut(reply.content, _TEXT_PIECES):
            yield _Delta(content=text)
    for index, call in enumerate(calls):
        if index or reply.content:
            yield _Delta(tool_calls=[_call_head(index, call)])
        for text in _cut(call.arguments, _ARGUMENT_PIECES):
            yield _Delta(tool_calls=[_CallDelta(index, _FunctionDelta(arguments=text))])


def _call_head(index: int, call: ToolCall) -> _CallDelta:
    return _CallDelta(index, _FunctionDelta(call.name, ""), call.call_id, "function")


def _cut(text: str, n_pieces: int) -> list[str]:
    length = max(1, -(-len(text) // n_pieces))
    return [text[start : start + length] for start in range(0, len(text), length)]
