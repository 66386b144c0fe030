"""Personas, which act as models in the simulated provider. The simplest one is defined here."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from pytest_ultrapar.apis.reply import ToolCall


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message in the conversation, as a persona sees it.

    Attributes:
        role: The message role, such as `system`, `user`, `assistant` or `tool`.
        content: The text. Parts are joined; missing content is an empty text.
        name: The author's name, if the request contains one.
        tool_call_id: The id of the call that a `tool` message answers.
        tool_calls: The native calls in an `assistant` message.
        attachments: Images, sounds and files, each as a digest.
    """

    role: str
    content: str = ""
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    attachments: tuple[str, ...] = ()


def digests(attachments: Iterable[bytes]) -> tuple[str, ...]:
    """Return the digests of attachments, each given as JSON; skip missing attachments."""
    given = (one for one in attachments if one and one != b"null")
    return tuple(hashlib.blake2b(one, digest_size=8).hexdigest() for one in given)


@dataclass(frozen=True, slots=True)
class PersonaReply:
    """The reply of a persona.

    Attributes:
        tool_calls: Native function calls.
        finish_reason: The finish reason in OpenAI's words: `stop`, `length` or `tool_calls`.
    """

    content: str
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: str = "stop"


Persona = Callable[[Sequence[ChatMessage], random.Random, float], PersonaReply]
"""Acts as a model, without state: the same arguments give the same reply, in any order of calls.

The server calls it on its event loop, so it must be quick (< 1 ms). Its arguments are

- the whole conversation, with one or more messages;
- the only source of randomness, seeded with the conversation, the model's name and the pool's seed;
- its skill, from 0 (always fails if it can) to 1 (never fails).
"""
_HEARD_CHARACTERS = 40


def echo(messages: Sequence[ChatMessage], rng: random.Random, skill: float) -> PersonaReply:
    """Answer `echo: ` and the first 40 characters of the last user message; ignore the skill."""
    return PersonaReply(f"echo: {heard(messages)}")


def heard(messages: Sequence[ChatMessage]) -> str:
    """Return the first 40 characters of the last user message; empty without such a message."""
    last = next((one.content for one in reversed(messages) if one.role == "user"), "")
    return last[:_HEARD_CHARACTERS]
