"""Makes text that a model or a server wrote safe to print on a terminal."""

from __future__ import annotations

import re

# C0 without tab and line feed, DEL, C1; bidi marks, embeddings, overrides and isolates, which
# reorder what a reader sees; line and paragraph separators; lone surrogates, which UTF-8 lacks.
# Source: ECMA-48 section 5 (control sequences), Unicode UAX #9 (bidi controls).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# A colour as pytest itself puts into the differences it shows: SGR, by the grammar of ECMA-48
# (5.4.2): numbers in decimal with any zeros before them, `;` between, an empty one is 0. Not 8,
# which hides text, however it is written; also not as part of a colour's number, since a terminal
# that does not know such colours takes each number for itself. Nothing above 255: a terminal that
# counts in bytes would take 264 for 8. Nothing with `:`, which not all terminals read alike.
_NUMBER = r"0*+(?:[1-79]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])?(?=[;m])"
_COLOUR = rf"\x1b\[(?:{_NUMBER};){{0,15}}{_NUMBER}m"
_UNSAFE_BUT_COLOURS = re.compile(f"({_COLOUR}|\r(?=\n))|{_UNSAFE.pattern}")
_LAST_BYTE = 0xFF


def visible(text: str, max_line: int | None = None) -> str:
    r"""`text` with everything that could steer a terminal shown as `\x1b`, `\u202e` and the like.

    Tabs and line feeds stay; a lone backslash is not doubled, since this is for eyes and never read
    back.

    Args:
        text: Any string, lone surrogates included.
        max_line: Longest line in characters, > 0; what is cut off is counted in its place.
    """
    text = _UNSAFE.sub(_shown, text)
    if max_line is None or len(text) <= max_line:
        return text
    return "\n".join(_cut(line, max_line) for line in text.split("\n"))


def harmless(text: str) -> str:
    """`visible`, but colours stay, and so do the ends of lines that Windows writes.

    For what pytest shows of a case: it colours differences itself, and tests may.
    """
    return _UNSAFE_BUT_COLOURS.sub(lambda match: match[1] or _shown(match), text)


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= _LAST_BYTE else f"\\u{code:04x}"


def _cut(line: str, max_line: int) -> str:
    if len(line) <= max_line:
        return line
    return f"{line[:max_line]}[+{len(line) - max_line} characters]"
