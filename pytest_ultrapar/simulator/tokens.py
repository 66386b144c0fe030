"""What a token is here: four characters, of a message's text, or of an answer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.exchange import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.apis.reply import ToolCall
    from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply

CHARACTERS = 4
ATTACHMENT_TOKENS = 85
"""What OpenAI counts for an image of low detail."""


def count_usage(replies: Sequence[PersonaReply], messages: Sequence[ChatMessage]) -> Usage:
    """The tokens of a request and of all its answers: begun ones count."""
    n_characters = n_attachments = 0
    for message in messages:
        n_characters += len(message.content)
        if message.tool_calls:
            n_characters += _characters(message.tool_calls)
        n_attachments += len(message.attachments)
    n_in = -(-n_characters // CHARACTERS) + ATTACHMENT_TOKENS * n_attachments
    n_out = 0
    for reply in replies:
        n_characters = len(reply.content)
        if reply.tool_calls:
            n_characters += _characters(reply.tool_calls)
        n_out += -(-n_characters // CHARACTERS)
    return Usage(n_in, n_out)


def _characters(calls: Sequence[ToolCall]) -> int:
    return sum(len(call.name) + len(call.arguments) for call in calls)
