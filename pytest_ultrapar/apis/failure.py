"""A failed attempt, the same for all APIs."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ultrapar.apis.failure_classes import FailedOutcome
from pytest_ultrapar.apis.outcome import Exceeded
from pytest_ultrapar.apis.reply import Reply

LARGEST_TEXT = 64 * 1024
"""The most characters stored of printed text, log text and a server's error."""
_LONGEST_SECRET = 4096
"""The most characters of a secret, with escapes; tokens of gateways have 1,000 to 2,000."""


def beginning(text: str) -> str:
    """`text`, or its beginning if it has more than `LARGEST_TEXT` characters.

    The cut is moved back by as many visible characters as a secret may have. Otherwise blanks in a
    secret could move its beginning into the shown part.
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
    """`beginning` of UTF-8 text; invalid bytes are replaced."""
    return beginning(body[: 4 * LARGEST_TEXT + 4].decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt without a reply.

    Attributes:
        outcome: The outcome with which the lease is returned.
        message: One sentence for people. It may quote the server at length, and with it a secret:
            `engine.sender.EngineParts.shown` removes secrets and shortens it before it is shown or
            stored.
        refused_kind: `context_length` or `content_filter` if `outcome` is `refused`.
        retry_after_s: The wait that the server asked for, seconds.
        maybe_billed: Whether the provider may have charged for it although no answer came.
        exceeded: The exceeded limit, with outcome `rate` or if `is_wordless`.
        is_final: Whether the server asked not to send the request again.
        is_wordless: Whether it is a 503 without `Retry-After` or a refused connection. It becomes
            `congestion` if the instance answers other requests meanwhile.
        meaning: The meaning of its words, one of `vocabulary.toml`; None if unknown.
        said: The error's message and codes in lower case; the pool's patterns match them.
        came: The part of an answer that came, only for the record; None without one.
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
