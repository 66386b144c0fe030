"""Markdown tables that are also aligned as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.escape import visible

if TYPE_CHECKING:
    from collections.abc import Sequence


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, n_names: int
) -> list[str]:
    """Lines of a table: names to the left and numbers to the right of their columns.

    Args:
        header: One text for each column.
        rows: As many texts each.
        n_names: How many of the first columns are names.
    """
    texts = [[_safe(text) for text in row] for row in (header, *rows)]
    widths = [max(3, *(len(row[i]) for row in texts)) for i in range(len(header))]
    ruler = [
        "-" * width if i < n_names else "-" * (width - 1) + ":" for i, width in enumerate(widths)
    ]
    aligned = [
        [
            text.ljust(width) if i < n_names else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in texts
    ]
    return [f"| {' | '.join(row)} |" for row in (aligned[0], ruler, *aligned[1:])]


def _safe(text: str) -> str:
    return visible(text).replace("|", "\\|").replace("\n", " ")
