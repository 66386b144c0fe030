r"""Patterns for all spellings of a text: escaped, in base64.

Escapes of one kind may be nested: JSON in JSON puts more backslashes before a quote, a URL in a URL
writes `%252F`. All quantifiers are possessive or end at a fixed text, and no pattern begins in the
middle of a run of backslashes, so that the time of a search is linear in the text.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BASE64_SHIFTS = range(3)
"""How many bytes before a secret belong to its first group: RFC 4648 makes four characters of three
bytes, so each shift has a base64 of its own."""

_PERCENT_BACKSLASH = r"%(?:25)*+5[Cc]"
_BACKSLASH = rf"(?:\\|{_PERCENT_BACKSLASH})"
_FIRST_BACKSLASHES = rf"(?:(?<!\\)\\++|{_PERCENT_BACKSLASH})"
"""Before the first character: a run from its beginning or, of those in URLs, the last one."""
_MOST_IN_URL = 32
"""Backslashes in a URL that may be too many before a secret that begins with one."""
_PERCENT = 0x25
_ASCII_END = 0x80
_BYTE_END = 0x100
_WORD_END = 0x10000
_LETTER_OF = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
_ENTITY_OF = {'"': "quot", "<": "lt", ">": "gt", "'": "apos"}


def escaped(text: str, equals: Mapping[str, str] | None = None) -> str:
    """A pattern for `text` as it stands or as JSON, `repr`, URLs, HTML and XML escape it.

    Args:
        text: Not empty.
        equals: Characters that may stand in place of others.
    """
    pieces: list[str] = []
    after_backslashes = False
    for run in re.findall(r"\\+|[^\\]", text):
        if run[0] == "\\":
            pieces.append(_first_run(len(run)) if not pieces else f"{_BACKSLASH}{{{len(run)},}}+")
        elif run.isascii() and run.isalnum():
            pieces.append(run)
        else:
            other = (equals or {}).get(run)
            also = [] if other is None else [*_spellings(other)]
            one_or_more, any_number = f"{_BACKSLASH}++", f"{_BACKSLASH}*+"
            if not pieces:
                one_or_more, any_number = _FIRST_BACKSLASHES, f"{_FIRST_BACKSLASHES}?"
            before = any_number if after_backslashes else one_or_more
            escapes = f"{before}(?:{'|'.join(_escapes(run))})"
            plain = f"{any_number}(?:{'|'.join([*_spellings(run), *also])})"
            pieces.append(f"(?:{escapes}|{plain})")
        after_backslashes = run[0] == "\\"
    return "".join(pieces)


def _first_run(n: int) -> str:
    """`n` backslashes or more at the beginning of a text."""
    # A run in a URL has no beginning that a pattern can see: it is bounded, so that trying it from
    # each place stays linear.
    in_url = f"(?:{_PERCENT_BACKSLASH}){{{n},{n + _MOST_IN_URL}}}+"
    return rf"(?:(?<!\\)\\{{{n},}}+|{in_url})(?!{_BACKSLASH})"


def base64_core(raw: bytes, shift: int) -> str:
    """What of the base64 of `raw` does not depend on the bytes around it, `shift` of them before.

    In the standard alphabet; in that of URLs `-` and `_` stand for `+` and `/`.
    """
    text = base64.b64encode(b"\0" * shift + raw).decode("ascii")
    return text[(shift * 8 + 5) // 6 : (shift + len(raw)) * 8 // 6]


def _escapes(char: str) -> Iterator[str]:
    """What may follow a backslash to mean `char`."""
    code = ord(char)
    if char in _LETTER_OF:
        yield _LETTER_OF[char]
    if code < _BYTE_END:
        yield f"x(?i:{code:02x})"
    if code < _WORD_END:
        yield f"u(?i:{code:04x})"
    else:
        high, low = 0xD800 + ((code - _WORD_END) >> 10), 0xDC00 + (code & 0x3FF)
        yield f"U(?i:{code:08x})"
        yield f"u(?i:{high:04x}){_BACKSLASH}++u(?i:{low:04x})"
    if code >= _ASCII_END:
        raw = char.encode("utf-8", "surrogatepass")
        yield f"{_BACKSLASH}++".join(f"x(?i:{byte:02x})" for byte in raw)


def _spellings(char: str) -> Iterator[str]:
    """`char` as a URL, HTML, XML or pytest's JUnit file has it, and itself.

    Itself comes last: `%` is also how its own escape `%25` begins.
    """
    code = ord(char)
    raw = char.encode("utf-8", "surrogatepass")
    yield "".join("%(?:25)+" if byte == _PERCENT else f"%(?:25)*+(?i:{byte:02x})" for byte in raw)
    if char == " ":
        yield r"\+"
    if char == "&":
        yield "&(?:amp;)+"
    if char in _ENTITY_OF:
        yield f"&(?:amp;)*+{_ENTITY_OF[char]};"
    yield f"&(?:amp;)*+#0*+{code};"
    yield f"&(?:amp;)*+#[xX]0*+(?i:{code:x});"
    if not char.isprintable():
        yield f"#x(?i:{code:02x})" if code < _BYTE_END else f"#x(?i:{code:04x})"
    yield re.escape(char)
