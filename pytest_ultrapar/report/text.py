"""Format numbers, tables and text from other programs for a terminal or as Markdown."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S


def counted(n: int, noun: str) -> str:
    """Return the number with its noun, such as `1 case`, `2 cases` or `1,200 requests`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Join at most `most` names and count the others, as in `a, b and 3 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def duration(seconds: float) -> str:
    """Return a time with about three digits, such as `12.3 s`, `4 min 05 s` or `2 d 04 h`."""
    if seconds < 10:  # noqa: PLR2004 - two decimals below 10 s, one from 10 s on
        return f"{seconds:.2f} s"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 2 * _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    if whole < 2 * _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S:02d} h"


def rate(per_s: float) -> str:
    """Return a rate like `1,332/s`. Below 1 per second, use minutes or hours, as in `7.5/min`."""
    for factor, unit in ((1, "s"), (_MINUTE_S, "min")):
        if per_s * factor >= 1:
            return f"{_few_digits(per_s * factor)}/{unit}"
    return f"{_few_digits(per_s * _HOUR_S)}/h"


def times(factor: float) -> str:
    """Return a speed-up as text, such as `297x` or `3.4x`."""
    return f"{_few_digits(factor)}x"


def or_dash(value: float | None, shown: Callable[[float], str]) -> str:
    """Return a number as text; `-` for None."""
    return "-" if value is None else shown(value)


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal, such as `61.5 %`."""
    return f"{share * 100:.1f} %"


def _few_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"  # noqa: PLR2004 - three digits


# C0 except tab and line feed; DEL; C1; bidi marks, embeddings, overrides and isolates, which
# reorder text on the screen; line and paragraph separators; unpaired surrogates, which UTF-8 lacks.
# Source: ECMA-48 section 5 (control sequences), Unicode UAX #9 (bidi controls).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# The control sequence SGR (ECMA-48, section 8.3.117) in all its forms.
_COLOUR = r"\x1b\[[0-9;:]*m"
_UNSAFE_OR_COLOUR = re.compile(f"({_COLOUR})|(\r\n)|{_UNSAFE.pattern}")
_LAST_BYTE = 0xFF
_SAFE_ASCII = bytes((*b"\t\n", *range(0x20, 0x7F)))


def visible(text: str) -> str:
    r"""Escape control characters, bidi controls and unpaired surrogates, as in `\x1b`.

    Tabs and line feeds are kept. Backslashes are not doubled, because only people read the text.
    """
    if text.isascii() and not text.encode().translate(None, _SAFE_ASCII):
        return text  # ten times as fast
    return _UNSAFE.sub(_shown, text)


def shortened(text: str, most: int) -> str:
    """Apply `visible` to the first `most` characters, and say how many more there are."""
    more = f"[+{len(text) - most:,} characters]" if len(text) > most else ""
    return f"{visible(text[:most])}{more}"


def one_line(text: str) -> str:
    r"""Apply `visible`, and also escape line feeds and tabs. Use this for names and table cells."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def harmless(text: str) -> str:
    r"""Apply `visible`, remove colours and keep `\r\n`.

    Use this for what pytest itself prints about a case. All colours are removed, because a model
    can write colours that look like pytest's colours.
    """
    return _UNSAFE_OR_COLOUR.sub(_left, text)


def _left(match: re.Match[str]) -> str:
    return "" if match[1] else match[2] or _shown(match)


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= _LAST_BYTE else f"\\u{code:04x}"


def n_cells(text: str) -> int:
    """Return how many terminal cells a text takes. A Chinese character takes 2, an accent 0.

    Source: Unicode UAX #11 (East Asian width).
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


GAP = "  "
_LINKED = re.compile(
    r"(?<!\w)@(?=\w)|:(?=//)|www(?=\.)|(?<=[\w.+-])@(?=[\w.-]*\.)|#(?=\d)|\bGH-(?=\d)",
    re.IGNORECASE,
)
"""Matches the part of a mention, address or reference after which a zero-width space is
inserted."""
_MARKUP = re.compile(r"[`*|~$]|<(?=[A-Za-z/!?])|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_LITERAL_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
"""Matches a backslash that would escape the next character. Markdown escapes only ASCII
punctuation."""
_LEAST_NAME = 8


def columns_of(rows: Sequence[Mapping[str, str]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Split rows with the same keys into a header and cells. Without rows, both are empty."""
    header = tuple(rows[0]) if rows else ()
    return header, [tuple(row.values()) for row in rows]


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, n_names: int, width: int
) -> list[str]:
    """Return the lines of a table, with names aligned left and numbers right.

    If the table is too wide, columns are dropped from the right, until the table fits or only two
    columns of numbers are left. A last line then says how many columns are hidden. If the table is
    still too wide, names are shortened in the middle.

    Args:
        header: One text for each column.
        rows: For each row, one text for each column.
        n_names: How many columns contain names; they come first.
        width: The width of a line, in characters. Lines are longer if the numbers need more room.
    """
    widths = _widths(header, rows)
    whole = _length(widths)
    while len(widths) > n_names + 2 and _length(widths) > width:
        widths.pop()
    while _length(widths) > width:
        widest = max(range(n_names), key=widths.__getitem__)
        if widths[widest] <= _LEAST_NAME:
            break
        widths[widest] -= 1
    lines = [GAP.join(_aligned(cells, widths, n_names)).rstrip() for cells in (header, *rows)]
    left_out = len(header) - len(widths)
    if left_out:
        lines.append(f"({counted(left_out, 'more column')} hidden; set COLUMNS={whole})")
    return lines


def shorten(text: str, width: int) -> str:
    """If a text is longer than `width`, cut out its middle, because names differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 2) // 2
    return f"{text[: width - 2 - tail]}..{text[len(text) - tail :]}"


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(n_cells, column)) for column in zip(header, *rows, strict=True)]


def _length(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _aligned(cells: Sequence[str], widths: Sequence[int], n_names: int) -> Iterator[str]:
    """Align names to the left and numbers to the right, for as many cells as there are widths."""
    for i, (cell, width) in enumerate(zip(cells, widths, strict=False)):
        shown = shorten(cell, width) if i < n_names and n_cells(cell) > width else cell
        gap = " " * (width - n_cells(shown))
        yield shown + gap if i < n_names else gap + shown


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, n_names: int
) -> list[str]:
    """Return the lines of a Markdown table, with names aligned left and numbers right.

    Args:
        header: One text for each column.
        rows: For each row, one text for each column.
        n_names: How many columns contain names; they come first.
    """
    head, *body = [[unmarked(text) for text in row] for row in (header, *rows)]
    widths = [max(3, width) for width in _widths(head, body)]
    ruler = [
        "-" * width if i < n_names else "-" * (width - 1) + ":" for i, width in enumerate(widths)
    ]
    return [f"| {' | '.join(_aligned(row, widths, n_names))} |" for row in (head, ruler, *body)]


def unmarked(text: str) -> str:
    """Escape a text so that a Markdown table cell shows it literally, without mentions or links.

    Only markup is escaped, so that the file also reads well as plain text.

    Source: GitHub Flavored Markdown 6.9 (extended autolinks) and GitHub's mentions and references.
    """
    shown = _LITERAL_BACKSLASH.sub(r"\\\\", visible(text).replace("\n", " "))
    shown = _ENTITY.sub("&amp;", _LINKED.sub("\\g<0>\u200b", shown))
    return _MARKUP.sub(r"\\\g<0>", shown)
