"""The meanings of words and codes in servers' errors.

They are in `vocabulary.toml`, which is read at the first failure.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet


_EXAMPLES = re.compile(r"^    \{.*\n", re.MULTILINE)
"""The lines with examples. They are removed, because parsing them would block all requests for
50 ms at the first failure of a run."""


_Sign = tuple[str, bool, re.Pattern[str]]
"""A meaning, whether a code (not words) identifies it, and the pattern for the code or words."""


@functools.cache
def vocabulary() -> dict[str, Any]:
    """Read the file without its examples. The file's header describes the format.

    A run without failures does not read the file.
    """
    import tomllib  # noqa: PLC0415 - see above

    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tomllib.loads(_EXAMPLES.sub("", text))


@functools.cache
def _signs(status: int) -> list[_Sign]:
    """The signs for a status: first codes, then words, then entries with `last = true`."""
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
    """Yield an error's possible meanings, most certain first, and for each whether a code matched.

    Args:
        codes: The error's codes, in lower case.
        text: The error's message in lower case, followed by the codes.
        status: The HTTP status.
    """
    for meaning, is_code, pattern in _signs(status):
        if any(map(pattern.fullmatch, codes)) if is_code else pattern.search(text):
            yield meaning, is_code


def status_of(word: str) -> int | None:
    """Return the HTTP status that an error's code, type or status word means; None if unknown."""
    known: dict[str, int] = vocabulary()["status"]
    return next((known[code] for code in known if re.fullmatch(code, word.lower())), None)
