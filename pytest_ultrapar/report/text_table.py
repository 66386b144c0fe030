"""Rows of text as an aligned table that fits a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "
_LEAST_NAME = 8


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, n_names: int, width: int
) -> list[str]:
    """Lines of a table, names to the left and numbers to the right of their columns.

    Where it is too wide, columns are left out from the right down to two numbers, which a last line
    says, then names are shortened in their middle.

    Args:
        header: One text for each column.
        rows: As many texts each.
        n_names: How many of the first columns are names.
        width: Characters for a line; below what the numbers need, lines are longer.
    """
    n_columns = len(header)
    while n_columns > n_names + 2 and sum(_widths(header, rows, n_columns)) > _room(
        width, n_columns
    ):
        n_columns -= 1
    widths = _widths(header, rows, n_columns)
    while sum(widths) > _room(width, n_columns):
        widest = max(range(n_names), key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _LEAST_NAME:
            break
        widths[widest] -= 1
    lines = [_line(cells, widths, n_names) for cells in (header, *rows)]
    left_out = len(header) - n_columns
    if left_out:
        whole = sum(_widths(header, rows, len(header))) + len(GAP) * (len(header) - 1)
        lines.append(f"({counted(left_out, 'column')} more with COLUMNS={whole})")
    return lines


def shorten(text: str, width: int) -> str:
    """`text`, its middle left out if it is longer than `width`: names differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 2) // 2
    return f"{text[: width - 2 - tail]}..{text[len(text) - tail :]}"


def _room(width: int, n_columns: int) -> int:
    return width - len(GAP) * (n_columns - 1)


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]], n_columns: int) -> list[int]:
    return [max(len(cells[i]) for cells in (header, *rows)) for i in range(n_columns)]


def _line(cells: Sequence[str], widths: Sequence[int], n_names: int) -> str:
    aligned = [
        shorten(cell, width).ljust(width) if i < n_names else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ]
    return GAP.join(aligned).rstrip()
