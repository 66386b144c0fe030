"""What no pool file may hold anywhere: literal keys, nesting without end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.place import Place, kind_of, looks_like_secret, shown, shown_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_DEPTH = 8
"""The deepest field of the schema, `provider[0].per_key.workers.fixed`, is at 6."""

_SECRET_FIELDS = frozenset(
    {"key", "api_key", "apikey", "secret", "token", "password", "authorization", "bearer"}
)
_BARE_FIELD = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")


def refuse_forbidden(tables: Mapping[str, object], place: Place) -> None:
    """Pass a file only if it holds no secret and no nesting without end.

    Raises:
        ConfigError: It does. The message names the field and never its value.
    """
    for where, field, value in _fields(tables, place):
        word = field.lower().replace("-", "_")
        if word in _SECRET_FIELDS:
            where.refuse(
                "is refused: a secret never stands in the file; put it into an environment variable"
                ' and name that variable: env = "MY_API_KEY"'
            )
        if field in {"env", "proxy_env"}:
            check_variable(where, value)


def check_variable(place: Place, value: object) -> str:
    """The name of an environment variable.

    Raises:
        ConfigError: It looks like none. It may be a literal key, so it is never shown.
    """
    if not isinstance(value, str):
        place.refuse(f"must be the name of an environment variable (got {kind_of(value)})")
    if not value:
        place.refuse("must be the name of an environment variable (got an empty string)")
    if not _VARIABLE.fullmatch(value) or looks_like_secret(value):
        place.refuse(
            "must be the name of an environment variable, made of A-Z, 0-9 and _ (its value is not"
            " shown, since it may be a secret; a literal key is refused)"
        )
    return value


def _fields(tables: Mapping[str, object], place: Place) -> Iterator[tuple[Place, str, object]]:
    # A stack and no recursion: dotted keys nest without depth in the text of the file.
    stack: list[tuple[Place, object, int]] = [(place, tables, 0)]
    while stack:
        where, value, depth = stack.pop()
        if depth > MAX_DEPTH:
            place.refuse(
                f"is nested more than {MAX_DEPTH} levels deep (at {shown_text(where.path)})"
            )
        if isinstance(value, dict):
            for field in value:
                if not _BARE_FIELD.fullmatch(field) or looks_like_secret(field):
                    where.refuse(f"has a field called {shown(field)}, which is not known")
            for field, inner in value.items():
                yield where.at(field), field, inner
            stack.extend((where.at(f), inner, depth + 1) for f, inner in reversed(value.items()))
        elif isinstance(value, list):
            entries = [(where.item(i), inner, depth + 1) for i, inner in enumerate(value)]
            stack.extend(reversed(entries))
