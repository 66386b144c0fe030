"""Conversations of Messages, Responses and Gemini, read as those of chat completions."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_ultrapar.apis.as_chat import conversation_of
from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator.persona import ChatMessage, digests


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Said(msgspec.Struct):
    role: str
    content: Any = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None


def messages_of(request: dict[str, Any]) -> list[ChatMessage]:
    """The conversation in a request; what is of a kind that says nothing here is left out.

    Raises:
        msgspec.ValidationError: A message has no such shape.
    """
    said = [{"role": "user", **one} for one in conversation_of(request) if one.keys() & _SAYING]
    return [_message(msgspec.convert(one, _Said)) for one in said]


_SAYING = {"role", "content"}


def _message(said: _Said) -> ChatMessage:
    parts = said.content if isinstance(said.content, list) else [said.content]
    texts: list[str] = []
    others: list[bytes] = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        elif part is not None:
            others.append(msgspec.json.encode(part))
    if said.role == "tool" and others and not texts:
        # The result of a function may be any JSON.
        texts, others = [one.decode() for one in others], []
    calls = said.tool_calls or ()
    return ChatMessage(
        said.role,
        "".join(texts),
        said.name,
        said.tool_call_id,
        tuple(ToolCall(c.id or "", c.function.name, c.function.arguments) for c in calls),
        digests(others),
    )
