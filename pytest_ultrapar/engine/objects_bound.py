"""How many objects an answer may hold, so that reading a small one never takes much memory."""

from __future__ import annotations

import re

MOST_OBJECTS = 10_000
_SMALL_BYTES = 256 * 1024
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def has_too_many_objects(content: bytes) -> bool:
    """Whether a JSON text has more objects than an answer needs.

    16 MiB of `{},{},` would become 5.6 million objects of 100 bytes and more. A small text may hold
    what it likes: 256 KiB make 10 MB.
    """
    if len(content) <= _SMALL_BYTES or content.count(b"{") <= MOST_OBJECTS:
        return False
    # Braces are also what code is made of: only those outside strings are objects.
    return _STRING.sub(b"", content).count(b"{") > MOST_OBJECTS
