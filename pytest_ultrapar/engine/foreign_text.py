"""What others wrote, where too much of it was written: its beginning, with no half of a secret.

Whoever shows such a text takes secrets out of it first and cuts it to its line afterwards
(`Redactor.short`): a secret that was cut is not recognised any more. Where a text is too large to
be kept whole until then, what is cut off here is more than any secret is long.
"""

from __future__ import annotations

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
