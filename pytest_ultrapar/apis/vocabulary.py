"""What servers mean by the words and codes of their errors: `vocabulary.toml`, read once needed."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Set


class _Sign(NamedTuple):
    """By what one meaning is known, and on which statuses."""

    meaning: str
    heard: re.Pattern[str]
    is_code: bool
    pattern: re.Pattern[str]


@functools.cache
def vocabulary() -> dict[str, Any]:
    """The file, whose beginning says what it has. A run without failures does not read it."""
    import tomllib  # noqa: PLC0415 - see above

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@functools.cache
def _signs() -> list[_Sign]:
    """Codes before words, and behind both what is to be heard last."""
    found: list[tuple[int, _Sign]] = []
    for meaning, its_own in vocabulary()["meanings"].items():
        for entry in vocabulary()[meaning]:
            heard = re.compile(entry.get("status", its_own["status"]))
            for rank, field in enumerate(("codes", "words")):
                if texts := entry.get(field):
                    pattern = re.compile(texts if field == "words" else "|".join(texts))
                    sign = _Sign(meaning, heard, field == "codes", pattern)
                    found.append((2 if "last" in entry else rank, sign))
    return [sign for _, sign in sorted(found, key=lambda one: one[0])]


def meanings(codes: Set[str], text: str, status: int) -> Iterator[tuple[str, bool]]:
    """What an error may mean, the surest first, and whether it is a code that says so.

    Args:
        codes: Its own, in lower case.
        text: Its message in lower case, and behind it the codes.
        status: On which it is heard.
    """
    for meaning, heard, is_code, pattern in _signs():
        found = map(pattern.fullmatch, codes) if is_code else [pattern.search(text)]
        if heard.fullmatch(str(status)) and any(found):
            yield meaning, is_code


def status_of(word: str) -> int | None:
    """The HTTP status that a code, type or status of an error stands for, if it is known."""
    known: dict[str, int] = vocabulary()["status"]
    return next((known[code] for code in known if re.fullmatch(code, word.lower())), None)
