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


def count(text: str) -> int:
    """The tokens of a text; begun ones count."""
    return -(-len(text) // CHARACTERS)


def count_usage(
    replies: Sequence[PersonaReply], messages: Sequence[ChatMessage], *, apart: bool = False
) -> Usage:
    """The tokens of a request and of all its answers.

    Args:
        replies: The answers.
        messages: Of the request.
        apart: Whether each message is counted alone, since it is a conversation of its own.
    """
    if apart:
        n_in = sum(count(message.content) for message in messages)
    else:
        n_in = _tokens(sum(_characters(one.content, one.tool_calls) for one in messages))
        n_in += ATTACHMENT_TOKENS * sum(len(one.attachments) for one in messages)
    return Usage(n_in, sum(_tokens(_characters(r.content, r.tool_calls or ())) for r in replies))


def _characters(content: str, calls: Sequence[ToolCall]) -> int:
    return len(content) + sum(len(call.name) + len(call.arguments) for call in calls)


def _tokens(n_characters: int) -> int:
    return -(-n_characters // CHARACTERS)


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MOST_ID = len(_DIGITS) ** CHARACTERS - 1


def text_of_ids(ids: Sequence[int]) -> str:
    """The text of a prompt given as ids of tokens: as many tokens as there are ids.

    Args:
        ids: Each from 0 to `MOST_ID`.
    """
    return "".join(
        _DIGITS[n // 46656] + _DIGITS[n // 1296 % 36] + _DIGITS[n // 36 % 36] + _DIGITS[n % 36]
        for n in ids
    )


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
