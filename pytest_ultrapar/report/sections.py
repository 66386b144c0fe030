"""Format the sections of a report for a terminal or as Markdown. All functions are pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ultrapar.report.text import (
    counted,
    markdown_table,
    one_line,
    shortened,
    text_table,
    unmarked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ANY_WIDTH = 10_000
"""A width at which no column is left out. Users can read or pipe a line that is too long, but they
cannot see a column that is missing."""
MOST_OF_A_COMMENT = 65_536
"""The maximum length of a comment on GitHub: a number of characters, used here as a number of
bytes.

Source: GitHub's REST API refuses longer bodies of issue comments.
"""
_SIZE_OF_A_NOTE = 4_000
_LONGEST_NAME = 300
_LONGEST_NOTE = 1_000
_FEWEST_NOTES = 3
"""A section keeps at least this many notes. This is how many the first section can have: the run's
state, whether it is simulated, and the verdict."""
_FEWEST_ROWS = 8
_CLOSING = re.compile(r"(?<!\\)#$")
_BLOCK = re.compile(r"^(\d*)([-+#>=:.)\[])")


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a report.

    Attributes:
        header: The header of the section's table; empty if there is no table.
        n_names: How many columns contain names. These columns come first.
        notes: The sentences below the table.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    n_names: int = 1
    notes: tuple[str, ...] = ()


def text_lines(sections: Iterable[Section]) -> Iterator[str]:
    """Yield the lines of the report for a terminal."""
    for number, section in enumerate(sections):
        if number:
            yield ""
        yield one_line(section.title)
        if section.rows:
            header, *rows = [
                [one_line(text) for text in row] for row in (section.header, *section.rows)
            ]
            yield from text_table(header, rows, n_names=section.n_names, width=_ANY_WIDTH)
        yield from (f"  {one_line(note)}" for note in section.notes)


def markdown_lines(sections: Iterable[Section]) -> Iterator[str]:
    """Yield the lines of the report as GitHub-flavoured Markdown."""
    for number, section in enumerate(sections):
        if number:
            yield ""
        yield from _markdown(section)


def markdown_within(sections: Iterable[Section], most_bytes: int) -> str:
    """Return the sections as at most `most_bytes` of Markdown.

    This is necessary because GitHub limits the size of comments and step summaries. In long tables,
    the last rows are left out, and in long lists, the last sentences. Long texts are cut, and
    sections that still do not fit are left out. The Markdown says what is missing.

    Args:
        sections: The sections of the report.
        most_bytes: The maximum length, in bytes of UTF-8. It must be at least 9,000.
    """
    parts: list[str] = []
    left_out: list[str] = []
    room = most_bytes - _SIZE_OF_A_NOTE
    for section in sections:
        text = _fitted(section, room)
        if text is None:
            left_out.append(section.title)
            continue
        parts.append(text)
        room -= len(text.encode()) + 1
    if left_out:
        parts.append(f"Too large to show: {_plain(', '.join(left_out))[: _SIZE_OF_A_NOTE // 8]}")
    return "\n".join(parts)


def _names(row: Iterable[str]) -> list[str]:
    return [_cut(text, _LONGEST_NAME) for text in row]


def _cut(text: str, most: int) -> str:
    return shortened(text.replace("\n", " "), most)


def _fitted(section: Section, most_bytes: int) -> str | None:
    """Return a section as Markdown with as many of its rows as fit; None if too few rows fit."""
    n_rows, n_notes = len(section.rows), len(section.notes)
    while True:
        hidden = ((len(section.rows) - n_rows, "row"), (len(section.notes) - n_notes, "sentence"))
        more = [f"{counted(n, f'more {what}')} omitted to save space" for n, what in hidden if n]
        notes = (*(_cut(note, _LONGEST_NOTE) for note in section.notes[:n_notes]), *more)
        shown = replace(section, rows=section.rows[:n_rows], notes=notes)
        text = "".join(f"{line}\n" for line in _markdown(shown))
        if len(text.encode()) <= most_bytes:
            return text
        if n_rows >= _FEWEST_ROWS:
            n_rows //= 2
        elif n_notes > _FEWEST_NOTES:
            # Drop the last sentences, because the first ones matter most.
            n_notes = max(_FEWEST_NOTES, n_notes // 2)
        else:
            return None


def _markdown(section: Section) -> Iterator[str]:
    yield f"### {_plain(_cut(section.title, _LONGEST_NAME))}"
    if section.rows:
        yield ""
        rows = [_names(row) for row in section.rows]
        yield from markdown_table(_names(section.header), rows, n_names=section.n_names)
    if section.notes:
        yield ""
        yield from (f"- {_plain(note)}" for note in section.notes)


def _plain(text: str) -> str:
    """Escape a paragraph so that it is shown literally, and not as a list or a heading."""
    return _CLOSING.sub(r"\\#", _BLOCK.sub(r"\1\\\2", unmarked(text).strip()))
