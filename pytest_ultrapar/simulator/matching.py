"""A text that a regular expression matches, built from the expression itself.

Nothing is searched, so no expression takes long; what would need a search is refused by name.
"""

from __future__ import annotations

import re

# Private, and the only parser of its own expressions that Python has; read in CPython 3.11 to 3.13.
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_Part = tuple[object, Any]
"""Its kind, and what it holds."""
_CANDIDATES = "a0A _-.,/@" + "".join(chr(code) for code in range(33, 127))
_LONGEST = 100_000


def matching(pattern: object, least: int) -> str:
    """A text that the pattern matches, of at least so many characters where it can be.

    Args:
        pattern: A regular expression as JSON Schema has it.
        least: Characters, >= 0.

    Raises:
        ValueError: It is none, or it holds what is not supported.
    """
    if not isinstance(pattern, str):
        _refuse("`pattern` must be a text")
    try:
        parsed = parser.parse(pattern)
        text = ""
        for more in (0, 1, 2, 4, 8, 16, 32, least):
            text = _text(parsed, more)
            if len(text) >= least:
                break
    except re.error as error:
        msg = f"`pattern` is no regular expression: {error}"
        raise ValueError(msg) from None
    return text


def _text(parts: Iterable[_Part], more: int) -> str:
    """The text of some parts.

    Args:
        parts: One after the other.
        more: How often what may come again comes beyond what it must.
    """
    return "".join(_text_of(part, more) for part in parts)


def _text_of(part: _Part, more: int) -> str:
    op, argument = part
    if op is codes.LITERAL:
        return chr(argument)
    if op is codes.ANY:
        return "a"
    if op is codes.NOT_LITERAL:
        return _one_of([(codes.NEGATE, None), (codes.LITERAL, argument)])
    if op is codes.IN:
        return _one_of(argument)
    if op in {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}:
        low, high, parts = argument
        times = min(low + more, high)
        text = _text(parts, more)
        if times * len(text) > _LONGEST:
            _refuse("`pattern` asks for too long a text")
        return text * int(times)
    if op is codes.SUBPATTERN:
        return _text(argument[-1], more)
    if op is codes.ATOMIC_GROUP:
        return _text(argument, more)
    if op is codes.BRANCH:
        return _text(argument[1][0], more)
    ends = {codes.AT_BEGINNING, codes.AT_BEGINNING_STRING, codes.AT_END, codes.AT_END_STRING}
    if op is codes.AT and argument in ends:
        return ""
    return _refuse(f"`pattern` holds {op}, which is not supported")


def _one_of(parts: Sequence[_Part]) -> str:
    """A character of a class such as `[^a-f0-9_]`."""
    negated = parts[0][0] is codes.NEGATE
    for character in _CANDIDATES:
        if any(_holds(part, character) for part in parts[negated:]) is not negated:
            return character
    op, argument = parts[0]
    if op is codes.LITERAL:
        return chr(argument)
    if op is codes.RANGE:
        return chr(argument[0])
    return _refuse("`pattern` holds a class without a plain character")


_CATEGORIES: dict[object, Callable[[str], bool]] = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    codes.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    codes.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    codes.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


def _holds(part: _Part, character: str) -> bool:
    op, argument = part
    if op is codes.LITERAL:
        return bool(ord(character) == argument)
    if op is codes.RANGE:
        low, high = argument
        return bool(low <= ord(character) <= high)
    is_one: bool = _CATEGORIES[argument](character)
    return is_one


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)
