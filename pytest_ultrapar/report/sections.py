"""A report as sections, for terminals and for Markdown; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.report.text import markdown_table, text_table, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ANY_WIDTH = 10_000
"""A line that is too long can be read or piped; a column left out can not."""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a report.

    Attributes:
        header: Of the table; empty where there is none.
        n_names: How many of the first columns are names.
        notes: Sentences below the table.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    n_names: int = 1
    notes: tuple[str, ...] = ()


def text_lines(sections: Iterable[Section]) -> Iterator[str]:
    """Lines for a terminal."""
    for number, section in enumerate(sections):
        if number:
            yield ""
        yield visible(section.title)
        if section.rows:
            header, *rows = [
                [visible(text) for text in row] for row in (section.header, *section.rows)
            ]
            yield from text_table(header, rows, n_names=section.n_names, width=_ANY_WIDTH)
        yield from (f"  {visible(note)}" for note in section.notes)


def markdown_lines(sections: Iterable[Section]) -> Iterator[str]:
    """Lines of GitHub-flavoured Markdown."""
    for number, section in enumerate(sections):
        if number:
            yield ""
        yield f"### {_plain(section.title)}"
        if section.rows:
            yield ""
            yield from markdown_table(section.header, section.rows, n_names=section.n_names)
        if section.notes:
            yield ""
            yield from (f"- {_plain(note)}" for note in section.notes)


def _plain(text: str) -> str:
    r"""Text that Markdown shows as it is: names of models and parameters hold `_`, `*` and `<`."""
    shown = visible(text).replace("\n", " ")
    return "".join(f"\\{letter}" if letter in r"\`*_<>[]|#" else letter for letter in shown)
