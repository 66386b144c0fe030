"""What a fault makes of an answer. Pure."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.simulator.answer import NEVER, Answer, Pieces, Whole, broken_off
from pytest_ultrapar.simulator.faults.script import (
    Drop,
    Effect,
    Error,
    Finish,
    Hang,
    Malformed,
    MalformedForm,
    Slow,
)
from pytest_ultrapar.simulator.persona import PersonaReply
from pytest_ultrapar.simulator.stream import as_event

_HEAD = b'{"id":"chatcmpl-0","object":"chat.completion","created":0,"model":"m","choices":'
_USAGE = b',"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}'
_BODIES: dict[MalformedForm, bytes] = {
    "not-json": b"<html><body>this is no JSON</body></html>",
    "wrong-type": b'["this is no completion"]',
    "empty-choices": _HEAD + b"[]" + _USAGE,
    "no-message": _HEAD + b'[{"index":0,"finish_reason":"stop"}]' + _USAGE,
    "null-content": _HEAD
    + b'[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":"stop"}]'
    + _USAGE,
    "empty": b"",
}


def disturbed_reply(reply: PersonaReply, effect: Effect) -> PersonaReply:
    """What is left of a reply: all of it, but for an early end."""
    if not isinstance(effect, Finish):
        return reply
    kept = (
        "" if effect.finish_reason == "content_filter" else reply.content[: len(reply.content) // 2]
    )
    return PersonaReply(kept, None, effect.finish_reason)


def disturbed_answer(answer: Answer, latency_s: float, effect: Effect) -> tuple[Answer, float]:
    """What is sent instead of an answer, and the latency with which it is."""
    if isinstance(effect, Error):
        return error_answer(effect), effect.after_s
    if isinstance(effect, Slow):
        return answer, latency_s * effect.factor + effect.extra_s
    if isinstance(effect, Hang):
        return (NEVER if effect.at == "start" else broken_off(answer, "silence")), latency_s
    if isinstance(effect, Drop):
        dropped = Pieces(None, (), (), "close")
        if effect.at == "body":
            dropped = broken_off(answer, "close")
        return dropped, latency_s if effect.after_s is None else effect.after_s
    if isinstance(effect, Malformed):
        return _malformed(answer, effect), latency_s
    return answer, latency_s


def error_answer(effect: Error) -> Whole:
    """The answer with another status, headers as given, JSON unless they say otherwise."""
    headers = tuple(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in effect.headers
    )
    return Whole(effect.body.encode(), effect.status, headers)


def _malformed(answer: Answer, effect: Malformed) -> Answer:
    if effect.body is None and effect.form == "truncated":
        if isinstance(answer, Pieces):
            return broken_off(answer, "complete")
        return msgspec.structs.replace(answer, body=answer.body[: len(answer.body) // 2])
    body = _BODIES[effect.form] if effect.body is None else effect.body.encode()
    if isinstance(answer, Pieces):
        return msgspec.structs.replace(answer, pieces=((1.0, as_event(body) if body else b""),))
    return msgspec.structs.replace(answer, body=body)
