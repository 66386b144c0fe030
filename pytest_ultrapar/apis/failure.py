"""An attempt that brought no reply, whichever API was asked."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ultrapar.apis.failure_classes import FailedOutcome
from pytest_ultrapar.apis.outcome import Exceeded
from pytest_ultrapar.apis.reply import Reply

LARGEST_TEXT = 64 * 1024
"""Characters that are kept of prints, of log text and of what a server says of a failure."""
_LONGEST_SECRET = 4096
"""Characters, escaped as it may be; tokens of gateways have one to two thousand."""


def beginning(text: str) -> str:
    """`text`, or what is kept of it when it has more than `LARGEST_TEXT` characters.

    What is dropped then begins before the cut, by as many visible characters as a secret may have:
    blanks within it would else push its beginning into what is shown.
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
    """What `beginning` keeps of UTF-8; bytes that are none are replaced."""
    return beginning(body[: 4 * LARGEST_TEXT + 4].decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that brought no reply.

    Attributes:
        outcome: What the lease is returned with.
        message: One sentence for people. May quote the server at length, and with it a secret:
            whoever shows or keeps it takes that out and cuts it afterwards
            (`engine.sender.EngineParts.shown`).
        refused_kind: `context_length` or `content_filter` when `outcome` is `refused`.
        retry_after_s: What the server asked for, seconds.
        maybe_billed: Whether the provider may have charged for it although no answer came.
        exceeded: Of what there was too much, with outcome `rate` or where it is wordless.
        is_final: Whether the server wants the request not to be sent again.
        is_wordless: Whether it is a 503 or a refused connection that names no time to come back:
            `congestion` where the instance answers others meanwhile.
        meaning: What its words mean, one of `vocabulary.toml`; None: not known.
        said: The error's own message and codes in lower case, by which a pool may know it.
        came: What had come of an answer, for the record alone; None: nothing.
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
