"""What servers mean by the words and codes of their errors: `vocabulary.toml`, read once needed."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet


_EXAMPLES = re.compile(r"^    \{.*\n", re.MULTILINE)
"""To parse them would take 50 ms, for which the first failure of a run would stop all others."""


_Sign = tuple[str, bool, re.Pattern[str]]
"""A meaning, whether it is a code by which it is known, and the code or the words."""


@functools.cache
def vocabulary() -> dict[str, Any]:
    """The file without its examples; its beginning says what it has.

    A run without failures does not read it.
    """
    import tomllib  # noqa: PLC0415 - see above

    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tomllib.loads(_EXAMPLES.sub("", text))


@functools.cache
def _signs(status: int) -> list[_Sign]:
    """What is heard on a status: codes before words, and behind both what is to be heard last."""
    found: list[tuple[int, _Sign]] = []
    for meaning, its_own in vocabulary()["meanings"].items():
        for entry in vocabulary()[meaning]:
            if not re.fullmatch(entry.get("status", its_own["status"]), str(status)):
                continue
            for rank, field in enumerate(("codes", "words")):
                if texts := entry.get(field):
                    pattern = re.compile(texts if field == "words" else "|".join(texts))
                    sign = (meaning, field == "codes", pattern)
                    found.append((2 if "last" in entry else rank, sign))
    return [sign for _, sign in sorted(found, key=lambda one: one[0])]


def meanings(codes: AbstractSet[str], text: str, status: int) -> Iterator[tuple[str, bool]]:
    """What an error may mean, the surest first, and whether it is a code that says so.

    Args:
        codes: Its own, in lower case.
        text: Its message in lower case, and behind it the codes.
        status: On which it is heard.
    """
    for meaning, is_code, pattern in _signs(status):
        if any(map(pattern.fullmatch, codes)) if is_code else pattern.search(text):
            yield meaning, is_code


def status_of(word: str) -> int | None:
    """The HTTP status that a code, type or status of an error stands for, if it is known."""
    known: dict[str, int] = vocabulary()["status"]
    return next((known[code] for code in known if re.fullmatch(code, word.lower())), None)
