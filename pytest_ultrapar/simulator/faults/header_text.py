"""Which headers a faults file may send: any, as long as HTTP itself stays whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.pool.place import Place

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_CHARACTERS = 200_000


def check_headers(
    place: Place, headers: Mapping[str, str | Sequence[str]]
) -> tuple[tuple[str, str], ...]:
    """Names, small, and values in the order given; a list is one header per value.

    Raises:
        ConfigError: A name or value cannot be sent, or would break the answer's framing, which is
            the server's own business.

    Source: RFC 9110, sections 5.1 and 5.5 (tokens; visible characters, blanks and obs-text).
    """
    found = []
    for name, values in headers.items():
        where = place.at(name)
        if not _NAME.fullmatch(name):
            where.refuse("is no name of a header")
        if name.lower() in _FRAMING:
            where.refuse("cannot be set: it says how the answer is framed")
        for value in [values] if isinstance(values, str) else values:
            if len(value) > _CHARACTERS:
                where.refuse(f"must have at most {_CHARACTERS} characters (got {len(value)})")
            if any(not (" " <= c <= "\xff" and c != "\x7f") and c != "\t" for c in value):
                where.refuse("must be of characters up to U+00FF, without line breaks")
            found.append((name.lower(), value))
    return tuple(found)
