"""Takes known secrets out of everything that is written or shown.

By value, not by pattern: the values of the keys in use are known, and a pattern would miss some and
hit others.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

from pytest_ultrapar.results.spellings import BASE64_SHIFTS, base64_core, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Utf8 = bytes
"""Text in bytes; the class below has a method of the name `bytes`."""

MASK = "***"
MIN_SECRET_LENGTH = 8
"""Shorter values are left alone: they would also hit words and numbers that are no secret."""

_LETTERS_AND_DIGITS = re.compile("[A-Za-z0-9]+")


class Redactor:
    """Replaces the secrets it knows by `***`, in each form in which they travel.

    Forms: plain; escaped as in JSON, Python's `repr`, URLs, HTML and XML, also one in the other and
    with the escapes' digits in any case; hexadecimal, all in lower or all in upper case; base64,
    also inside a longer base64 text such as that of an `Authorization: Basic` header. Its `repr`
    shows nothing, and it cannot be pickled.
    """

    __slots__ = ("_forms", "_needles")

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH})
        self._forms = tuple(form for secret in known for form in _forms(secret))
        self._needles = tuple(dict.fromkeys(form.needle for form in self._forms))

    def __repr__(self) -> str:
        return "Redactor(***)"

    def __reduce__(self) -> NoReturn:
        msg = "a Redactor holds secrets and does not leave its process"
        raise TypeError(msg)

    def bytes(self, data: Utf8) -> Utf8:
        """UTF-8 `data` without secrets; the same object when it holds none."""
        # Needles are ASCII, and looking for them in bytes costs 0.3 us more for each of them.
        if not self._may_hold_secret(data.decode("latin-1")):
            return data
        text = data.decode("utf-8", "surrogateescape")
        plain = self.text(text)
        return data if plain is text else plain.encode("utf-8", "surrogateescape")

    def text(self, text: str) -> str:
        """`text` without secrets; the same object when it holds none."""
        if not self._may_hold_secret(text):
            return text
        found = [form.spans(text) for form in self._forms if form.needle in text]
        spans = sorted(chain.from_iterable(found))
        return _masked(text, spans) if spans else text

    def _may_hold_secret(self, text: str) -> bool:
        for needle in self._needles:  # noqa: SIM110 - `any` takes twice as long
            if needle in text:
                return True
        return False


class _Form:
    """One form of a secret.

    Attributes:
        needle: What every text that holds the form holds, too. It is looked for first: 0.6 us for a
            text of 5 kB, where the pattern takes 30 us and more. The longer, the faster.
    """

    def __init__(self, needle: str, pattern: str) -> None:
        self.needle = needle
        self._source = pattern

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._source)  # 1 ms for a long key: only when it is needed

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the form stands; places may overlap."""
        match = self._pattern.search(text)
        while match is not None:
            yield match.span()
            match = self._pattern.search(text, match.start() + 1)


def _forms(secret: str) -> Iterator[_Form]:
    # Letters and digits of ASCII stand for themselves in every escaped form.
    yield _Form(_longest_run(secret), escaped(secret))
    raw = secret.encode("utf-8", "surrogatepass")
    for digits in (raw.hex(), raw.hex().upper()):
        yield _Form(digits, digits)
    for shift in BASE64_SHIFTS:
        core = base64_core(raw, shift)
        if len(core) >= MIN_SECRET_LENGTH:
            yield _Form(_longest_run(core), escaped(core, {"+": "-", "/": "_"}))


def _longest_run(text: str) -> str:
    return max(_LETTERS_AND_DIGITS.findall(text), key=len, default="")


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with each stretch of overlapping spans replaced; they are sorted."""
    pieces: list[str] = []
    kept_from = 0
    start, end = spans[0]
    for next_start, next_end in spans[1:]:
        if next_start < end:
            end = max(end, next_end)
            continue
        pieces += (text[kept_from:start], MASK)
        kept_from, start, end = end, next_start, next_end
    pieces += (text[kept_from:start], MASK, text[end:])
    return "".join(pieces)
