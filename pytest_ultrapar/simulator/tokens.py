"""What a token is here: four characters, of a message's text, or of an answer's."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.exchange import TokenLogprob, Usage

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


def logprobs(text: str, n_top: int, chance: int) -> list[TokenLogprob]:
    """How likely the model found each token of a text.

    It depends on the text before it and on the token, as with a real model: two texts that begin
    alike have the same log-probabilities as long as they are.

    Args:
        text: The text.
        n_top: Alternatives wanted, at least 0; the token itself counts as one.
        chance: What stands for the model and its seed.
    """
    found = []
    state = chance
    for start in range(0, len(text), CHARACTERS):
        token = text[start : start + CHARACTERS]
        state = zlib.crc32(token.encode("utf-8", "replace"), state)
        own = 0.5 + state / 2**33
        # The others share what is left: a half, a quarter, and so on, all below the token's own.
        rest = [
            (f"{token[:-1]}{chr(0x61 + k)}{k}", math.log((1 - own) / 2 ** (k + 1)))
            for k in range(n_top - 1)
        ]
        top = [(token, math.log(own)), *rest] if n_top else []
        found.append(TokenLogprob(token, math.log(own), top))
    return found
