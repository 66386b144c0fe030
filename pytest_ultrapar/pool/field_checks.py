"""Locations in user input, checks of the values there, and their error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pytest_ultrapar.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


_SHOWN_CHARS = 60
_SECRET_PREFIXES = re.compile(
    r"\A((?i:bearer)\s|[spr]k[-_]|gsk_|xai-|hf_|gh[pousr]_|github_pat_|AIza|AKIA|eyJ)"
)
"""The beginnings of secrets. Except for `Bearer`, they are case-sensitive: `hf_...` is a key, but
`HF_TOKEN` is the name of a variable."""
_SECRET_RUN = re.compile(r"[A-Za-z0-9+/=]{20,}")
_EXACT_INT = 10**18


@dataclass(frozen=True, slots=True)
class Location:
    """A field in a file, an environment variable, or a command-line option.

    Attributes:
        source: `pool.toml`, `environment` or `command line`.
        path: The place, such as `provider[0].per_key.qps` or `MAX_WORKERS`; empty for the whole
            source.
    """

    source: str
    path: str = ""

    def at(self, field: str) -> Location:
        """The location of this field, if `self` is the location of a table."""
        return replace(self, path=f"{self.path}.{field}" if self.path else field)

    def item(self, index: int) -> Location:
        """The location of this entry (from 0), if `self` is the location of a list."""
        return replace(self, path=f"{self.path}[{index}]")

    def refuse(self, what: str) -> NoReturn:
        """Refuse the value at this location.

        Raises:
            ConfigError: Always, with the message `<source>: <path> <what>`.
        """
        refuse(f"{self}: {what}" if not self.path else f"{self} {what}")

    def __str__(self) -> str:
        return f"{self.source}: {self.path}" if self.path else self.source


def looks_like_secret(text: str) -> bool:
    """Whether `text` could be an API key: a known prefix, or many letters and digits in a row.

    Names of models do not match: a `-`, `.`, `_` or `:` breaks up their letters and digits.
    """
    if _SECRET_PREFIXES.match(text):
        return True
    runs = _SECRET_RUN.findall(text)
    return any(re.search("[0-9]", run) and re.search("[A-Za-z]", run) for run in runs)


def shown(found: object) -> str:
    """Return a value as one short line for messages, without control characters or secrets."""
    if isinstance(found, str):
        return f'"{shown_text(found)}"' if not looks_like_secret(found) else '"***"'
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int) and abs(found) > _EXACT_INT:
        # str() fails for an int of more than 4300 digits, and even 50 digits are of no use to a
        # reader.
        return "a number below -1e18" if found < 0 else "a number above 1e18"
    if isinstance(found, int | float):
        return str(found)
    return kind_of(found)


def shown_text(text: str) -> str:
    """Return text cut to 60 characters, with unprintable characters escaped.

    The escapes keep a terminal from interpreting these characters.
    """
    visible = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: _SHOWN_CHARS + 1])
    return visible if len(visible) <= _SHOWN_CHARS else visible[: _SHOWN_CHARS - 3] + "..."


def kind_of(found: object) -> str:
    """The kind of a TOML value in words, never the value itself."""
    words: dict[type, str] = {
        dict: "a table",
        list: "a list",
        str: "a string",
        bool: "true or false",
    }
    words |= {int: "an integer", float: "a number with a fraction"}
    return words.get(type(found), "a date or time")


_W = TypeVar("_W", bound=str)
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
_API_NAME = re.compile(r"[A-Za-z0-9._:/@+-]+")
_NAME_CHARS = 100


@cache
def _zones() -> frozenset[str]:
    from zoneinfo import available_timezones  # noqa: PLC0415 - few pools count by calendar days

    # available_timezones() also lists files that are not zones.
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})


def check_zone(location: Location, name: str) -> str:
    """Return the name, if it is a time zone in the IANA database.

    Raises:
        ConfigError: There is no such zone.
    """
    if name not in _zones():
        meant = did_you_mean(name, _zones(), form='"{}"', cutoff=0.8)
        location.refuse(
            'must be a time zone in the IANA database, such as "America/Los_Angeles" or "UTC" '
            f"(got {shown(name)}){meant}"
        )
    return name


def check_name(location: Location, name: str) -> str:
    """Return the name, if it can be part of ids, file names and column names.

    Raises:
        ConfigError: It is empty, too long, or contains a character that is not allowed, such as
            `/`, which separates the parts of ids. Or it begins like a folder (`..`), a hidden file
            or an option.
    """
    _check_text(location, name, _NAME, "letters, digits and . _ : -")
    if name[0] in ".:-":
        location.refuse(f"must begin with a letter, a digit or _ (got {shown(name)})")
    return name


def check_api_name(location: Location, name: str) -> str:
    """Return the name, if it can be sent to an API; it may also contain `/`, `@` and `+`.

    Raises:
        ConfigError: It is empty, too long, contains a character that is not allowed, or would
            change the path of a URL (`..`).
    """
    _check_text(location, name, _API_NAME, "letters, digits and . _ : - / @ +")
    if name == "." or ".." in name.split("/"):
        location.refuse(f'must not be "." or contain the path segment ".." (got {shown(name)})')
    return name


def check_word(location: Location, word: str, allowed: tuple[_W, ...]) -> _W:
    """Return the allowed word that equals `word`.

    Raises:
        ConfigError: No allowed word equals it. The message lists the allowed words, and suggests a
            similar one, if there is one.
    """
    same = [candidate for candidate in allowed if candidate == word]
    if not same:
        meant = did_you_mean(word, allowed, form='"{}"')
        location.refuse(f"must be {one_of(allowed)} (got {shown(word)}){meant}")
    return same[0]


def did_you_mean(
    word: str, allowed: Collection[str], *, form: str = "{}", cutoff: float = 0.6
) -> str:
    """Return a suggestion such as `; did you mean rpm?`; empty if no allowed word is similar.

    Args:
        word: The word that was found.
        allowed: The words to suggest.
        form: The format of the suggestion, with `{}` in place of the word.
        cutoff: The minimum similarity, from 0 to 1.
    """
    import difflib  # noqa: PLC0415 - 8 ms, and only this message uses it

    near = difflib.get_close_matches(word, allowed, n=1, cutoff=cutoff)
    return f"; did you mean {form.format(near[0])}?" if near else ""


def check_different(places: Iterable[tuple[Location, str]]) -> None:
    """Check that no two places have the same value.

    Raises:
        ConfigError: Two places have the same value; the message names both places.
    """
    seen: dict[str, Location] = {}
    for location, text in places:
        first = seen.setdefault(text, location)
        if first is not location:
            location.refuse(f"must be unique (got {shown(text)}, as in {first.path})")


def one_of(allowed: tuple[str, ...]) -> str:
    """The allowed words in the form that messages use: `"a" or "b"`."""
    return " or ".join(f'"{word}"' for word in allowed)


def _check_text(location: Location, text: str, pattern: re.Pattern[str], made_of: str) -> None:
    if not text:
        location.refuse("must not be empty")
    if len(text) > _NAME_CHARS:
        location.refuse(f"must have at most {_NAME_CHARS} characters (got {len(text)})")
    if not pattern.fullmatch(text):
        location.refuse(f"must consist of {made_of} (got {shown(text)})")
