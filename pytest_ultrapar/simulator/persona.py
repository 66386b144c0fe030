"""Personas, which act as models in the simulated provider, and the simplest of them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from pytest_ultrapar.apis.reply import ToolCall


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the conversation as a persona sees it.

    Attributes:
        role: `system`, `user`, `assistant`, `tool`, ...
        content: The text; parts are joined, an absent content is empty.
        name: The author's name, if the request has one.
        tool_call_id: The call that a `tool` message answers.
        tool_calls: The native calls that an `assistant` message made.
        attachments: Images, sounds and files, each as a digest.
    """

    role: str
    content: str = ""
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    attachments: tuple[str, ...] = ()


def digests(attachments: Iterable[bytes]) -> tuple[str, ...]:
    """Digests of attachments, given as JSON; absent attachments are left out."""
    given = (one for one in attachments if one and one != b"null")
    return tuple(hashlib.blake2b(one, digest_size=8).hexdigest() for one in given)


@dataclass(frozen=True, slots=True)
class PersonaReply:
    """The reply of a persona.

    Attributes:
        tool_calls: Native function calls.
        finish_reason: In OpenAI's words: `stop`, `length`, `tool_calls`.
    """

    content: str
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: str = "stop"


Persona = Callable[[Sequence[ChatMessage], random.Random, float], PersonaReply]
"""Acts as a model, without state: the same arguments give the same reply, in any order.

The server calls it on its event loop, so it must be quick (< 1 ms). Its arguments are

- the whole conversation, at least one message;
- the only source of randomness, seeded by the conversation, the model's name and the pool's seed;
- its skill, from 0 (always fails if it can) to 1 (never fails).
"""
_HEARD_CHARACTERS = 40


def echo(messages: Sequence[ChatMessage], rng: random.Random, skill: float) -> PersonaReply:
    """Answer `echo: ` and the first 40 characters of the last user message, for any skill."""
    return PersonaReply(f"echo: {heard(messages)}")


def heard(messages: Sequence[ChatMessage]) -> str:
    """The first 40 characters of the last user message; empty if there is no user message."""
    last = next((one.content for one in reversed(messages) if one.role == "user"), "")
    return last[:_HEARD_CHARACTERS]
