"""Where in the user's input something stands, so that every refusal names it in the same form."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NoReturn

from pytest_ultrapar.errors import ConfigError

_SHOWN_CHARS = 60
_SECRET_PREFIXES = re.compile(
    r"(?i)\A(bearer\s|[spr]k[-_]|gsk_|xai-|hf_|gh[pousr]_|github_pat_|aiza|akia|eyj)"
)
_SECRET_RUN = re.compile(r"[A-Za-z0-9+/=]{20,}")
_EXACT_INT = 10**18


@dataclass(frozen=True, slots=True)
class Place:
    """A field of a file, a variable of the environment or an option of the command line.

    Attributes:
        source: `pool.toml`, `environment` or `command line`.
        path: `provider[0].per_key.qps`, `MAX_WORKERS`; empty for the whole source.
    """

    source: str
    path: str = ""

    def at(self, field: str) -> Place:
        """The field of that name below this place."""
        return replace(self, path=f"{self.path}.{field}" if self.path else field)

    def item(self, index: int) -> Place:
        """The entry of that index (from 0) of the list at this place."""
        return replace(self, path=f"{self.path}[{index}]")

    def refuse(self, what: str) -> NoReturn:
        """Refuse what stands here.

        Raises:
            ConfigError: Always, saying `<source>: <path> <what>`.
        """
        # From None: what led here is the user's text, which a chained traceback would show.
        raise ConfigError(f"{self}: {what}" if not self.path else f"{self} {what}") from None

    def __str__(self) -> str:
        return f"{self.source}: {self.path}" if self.path else self.source


def looks_like_secret(text: str) -> bool:
    """Whether `text` could be an API key: a known prefix, or a long run of letters and digits.

    Names of models stay clear of it, since they are broken by `-`, `.`, `_` or `:`.
    """
    if _SECRET_PREFIXES.match(text):
        return True
    runs = _SECRET_RUN.findall(text)
    return any(re.search("[0-9]", run) and re.search("[A-Za-z]", run) for run in runs)


def shown(found: object) -> str:
    """A value as messages show it: one line, bounded, free of control characters and of secrets."""
    if isinstance(found, str):
        return f'"{shown_text(found)}"' if not looks_like_secret(found) else '"***"'
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int) and abs(found) > _EXACT_INT:
        # str() of an int above 4300 digits raises, and nobody wants to read one of 50.
        return "a number below -1e18" if found < 0 else "a number above 1e18"
    if isinstance(found, int | float):
        return str(found)
    return kind_of(found)


def shown_text(text: str) -> str:
    """Text cut to 60 characters, with everything that could steer a terminal escaped."""
    visible = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: _SHOWN_CHARS + 1])
    return visible if len(visible) <= _SHOWN_CHARS else visible[: _SHOWN_CHARS - 3] + "..."


def kind_of(found: object) -> str:
    """What kind of TOML value this is, in words; never the value itself."""
    words: dict[type, str] = {
        dict: "a table",
        list: "a list",
        str: "a string",
        bool: "true or false",
    }
    words |= {int: "an integer", float: "a number with a fraction"}
    return words.get(type(found), "a date or time")
