"""The parts that requests to all APIs have in common: the conversation, and a forced function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.apis.as_chat import conversation_of
from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.simulator.api_error import refuse
from pytest_ultrapar.simulator.persona import ChatMessage, digests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.simulator.exchange import OfferedFunction


class Function(msgspec.Struct):
    """The function that is called, and its arguments."""

    name: str
    arguments: str = ""


class Call(msgspec.Struct):
    """A call that the model made."""

    function: Function
    id: str | None = None


class Said(msgspec.Struct):
    """A message in the format of chat completions."""

    role: str
    content: Any = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[Call] | None = None


def messages_of(request: dict[str, Any]) -> list[ChatMessage]:
    """Read the conversation in a request; items without a message are skipped.

    Raises:
        msgspec.ValidationError: A message has another format.
    """
    said = [{"role": "user", **one} for one in conversation_of(request) if one.keys() & _SAYING]
    return [message_of(msgspec.convert(one, Said)) for one in said]


_SAYING = {"role", "content"}


def message_of(said: Said) -> ChatMessage:
    """Convert a message to the form that personas see. Parts without text become attachments."""
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
        # The result of a function may be any JSON value.
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


def chosen(offered: Iterable[OfferedFunction], named: str | None) -> OfferedFunction:
    """Return the function with this name, or the first one if any name is allowed.

    Raises:
        RefusedError: The request does not offer such a function.
    """
    found = next((one for one in offered if named is None or one.name == named), None)
    if found is None:
        refuse("the request forces a function that `tools` does not contain", param="tool_choice")
    return found
