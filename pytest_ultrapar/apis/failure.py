"""A failed attempt, in the same form for all APIs."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ultrapar.apis.failure_classes import FailedOutcome
from pytest_ultrapar.apis.outcome import Exceeded
from pytest_ultrapar.apis.reply import Reply

LARGEST_TEXT = 64 * 1024
"""How many characters are stored, at most, from a printed text, a log or a server's error."""
_LONGEST_SECRET = 4096
"""The maximum length of a secret, including escapes. Gateways' tokens have 1,000 to 2,000
characters."""


def beginning(text: str) -> str:
    """Return `text`, or its beginning if it has more than `LARGEST_TEXT` characters.

    If the cut splits a secret, the secret's beginning must not remain. So the cut is moved back by
    as many visible characters as a secret may have; blanks inside a secret do not count.
    """
    if len(text) <= LARGEST_TEXT:
        return text
    n_visible, end = 0, LARGEST_TEXT
    while end and n_visible < _LONGEST_SECRET:
        end -= 1
        char = text[end]
        n_visible += char != " " and char.isprintable()
    return text[:end]


def beginning_of_bytes(body: bytes) -> str:
    """Return the `beginning` of UTF-8 text; invalid bytes are replaced."""
    return beginning(body[: 4 * LARGEST_TEXT + 4].decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt without a reply.

    Attributes:
        outcome: The outcome with which the lease is returned.
        message: One sentence for the user. It may quote the server at length, including a secret.
            Before it is shown or stored, `engine.sender.EngineParts.shown` removes secrets from
            it and shortens it.
        refused_kind: `context_length` or `content_filter` if `outcome` is `refused`.
        retry_after_s: The wait that the server asked for, in seconds.
        maybe_billed: Whether the provider may have charged for the request although it failed.
        exceeded: The exceeded limit, if `outcome` is `rate` or if `is_wordless`.
        is_final: Whether the server asked clients not to send the request again.
        is_wordless: Whether this is a 503 without `Retry-After` or a refused connection. The
            outcome becomes `congestion` if the instance is answering other requests meanwhile.
        meaning: The meaning of the error's words according to `vocabulary.toml`; None if unknown.
        said: The error's message and codes in lower case, for the pool's patterns.
        came: The part of an answer that arrived, only for the record; None if nothing arrived.
    """

    outcome: FailedOutcome
    message: str
    refused_kind: str | None = None
    retry_after_s: float | None = None
    maybe_billed: bool = False
    exceeded: Exceeded | None = None
    is_final: bool = False
    is_wordless: bool = False
    meaning: str | None = None
    said: str = ""
    came: Reply | None = None
