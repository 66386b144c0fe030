"""What numbers, names and words may be, and the one sentence said about each that is not."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pytest_ultrapar.pool.place import Place, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

_N = TypeVar("_N", int, float)
_W = TypeVar("_W", bound=str)
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
_API_NAME = re.compile(r"[A-Za-z0-9._:/@+-]+")
_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class Bounds:
    """The interval a number must lie in; finite at its upper end, so that infinity never passes.

    Attributes:
        at_most: Largest allowed value.
        at_least: Smallest allowed value, if there is one.
        above: Every value must be larger than this, if given.
    """

    at_most: float
    at_least: float | None = None
    above: float | None = None

    def check(self, place: Place, value: _N) -> _N:
        """The value itself.

        Raises:
            ConfigError: It is not a number or outside the bounds; the message says which bound.
        """
        if isinstance(value, float) and math.isnan(value):
            place.refuse("must be a number (got nan)")
        if self.above is not None and not value > self.above:
            place.refuse(f"must be > {self.above:g} (got {shown(value)})")
        if self.at_least is not None and value < self.at_least:
            place.refuse(f"must be >= {self.at_least:g} (got {shown(value)})")
        if value > self.at_most:
            place.refuse(f"must be <= {_plain(self.at_most)} (got {shown(value)})")
        return value

    def __str__(self) -> str:
        low = f"> {self.above:g}" if self.above is not None else f">= {_plain(self.at_least or 0)}"
        return f"{low} and <= {_plain(self.at_most)}"


WORKERS = Bounds(at_least=1, at_most=100_000)
# Below one send in 11 days a rate is a slip of the hand, and 1 / rate stays far from infinity.
RATE = Bounds(above=0, at_least=1e-6, at_most=1_000_000)
TOKENS = Bounds(at_least=1, at_most=10_000_000_000)
DEADLINE_S = Bounds(above=0, at_most=86_400)
LATENCY_S = Bounds(at_least=0, at_most=3_600)
SIGMA = Bounds(at_least=0, at_most=5)
SKILL = Bounds(at_least=0, at_most=1)
PRICE = Bounds(at_least=0, at_most=1_000_000)
PORT = Bounds(at_least=1, at_most=65_535)
SEED = Bounds(at_least=0, at_most=2**63 - 1)
REPEATS = Bounds(at_least=1, at_most=100_000)
PROCESS_NUM = Bounds(at_least=1, at_most=100_000)
PROMPT_TYPES = Bounds(at_least=1, at_most=1_000)


def check_name(place: Place, name: str) -> str:
    """A name that can stand in ids, file names and columns.

    Raises:
        ConfigError: It is empty, too long or has other characters (`/` separates the parts of ids).
    """
    return _check_text(place, name, _NAME, "letters, digits and . _ : -")


def check_api_name(place: Place, name: str) -> str:
    """A name as the API wants it, where `/`, `@` and `+` occur as well.

    Raises:
        ConfigError: It is empty, too long or has other characters.
    """
    return _check_text(place, name, _API_NAME, "letters, digits and . _ : - / @ +")


def check_word(place: Place, word: str, allowed: tuple[_W, ...]) -> _W:
    """The allowed word that equals `word`.

    Raises:
        ConfigError: There is none; the message lists the allowed words, and asks for the nearest.
    """
    same = [candidate for candidate in allowed if candidate == word]
    if not same:
        import difflib  # noqa: PLC0415 - 8 ms, needed only for this message

        near = difflib.get_close_matches(word, allowed, n=1)
        meant = f'; did you mean "{near[0]}"?' if near else ""
        place.refuse(f"must be {one_of(allowed)} (got {shown(word)}){meant}")
    return same[0]


def check_different(places: Iterable[tuple[Place, str]]) -> None:
    """Make sure that no two places say the same.

    Raises:
        ConfigError: Two do; the message names both places.
    """
    seen: dict[str, Place] = {}
    for place, text in places:
        first = seen.setdefault(text, place)
        if first is not place:
            place.refuse(f"must be unique (got {shown(text)}, as in {first.path})")


def one_of(allowed: tuple[str, ...]) -> str:
    """`"a"` or `"b"`, as messages list allowed words."""
    return " or ".join(f'"{word}"' for word in allowed)


def _check_text(place: Place, text: str, pattern: re.Pattern[str], made_of: str) -> str:
    if not text:
        place.refuse("must not be empty")
    if len(text) > _NAME_CHARS:
        place.refuse(f"must have at most {_NAME_CHARS} characters (got {len(text)})")
    if not pattern.fullmatch(text):
        place.refuse(f"must be made of {made_of} (got {shown(text)})")
    return text


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"
