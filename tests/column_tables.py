"""The tables of columns in docs/reference/results.md, generated from the records' fields.

`python -m tests.column_tables` writes them into the page.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pytest_ultrapar.store.tables import (
    ATTEMPTS_COLUMNS,
    LIMITS_COLUMNS,
    PAUSES_COLUMNS,
    TRANSCRIPTS_COLUMNS,
    Column,
    results_columns,
)

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "results.md"
_OF_A_SUITE = {
    "meta.<name>": ("type of the values, or null", "A column for each name in a mark's `meta`"),
    "param.<name>": ("type of the values, or null", "A column for each parameter of the suite"),
    "label.<name>": ("string or null", "A column for each label that is passed to `grade`"),
    "score.<name>": ("double or null", "A column for each score that is passed to `grade`"),
}
TABLES = {
    "results": results_columns(
        [Column("meta.<name>", "string"), Column("param.<name>", "string")],
        [Column("label.<name>", "string"), Column("score.<name>", "double")],
    ),
    "attempts": ATTEMPTS_COLUMNS,
    "transcripts": TRANSCRIPTS_COLUMNS,
    "limits": LIMITS_COLUMNS,
    "pauses": PAUSES_COLUMNS,
}


def meanings(record: type) -> dict[str, str]:
    """The `Attributes` of a record's docstring, for each field, without the full stop."""
    _, _, listed = (inspect.getdoc(record) or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()).removesuffix(".") for name, text in found}


def made(name: str) -> str:
    """The table of one table's columns, as Markdown."""
    lines = ["| column | type | meaning |", "| --- | --- | --- |"]
    for column in TABLES[name]:
        if column.record is None:
            kind, meaning = _OF_A_SUITE[column.name]
        else:
            kind = f"{column.kind} or null" if column.nullable else column.kind
            own = getattr(column.record, column.field)
            of_property = own.__doc__.removesuffix(".") if isinstance(own, property) else None
            meaning = of_property or meanings(column.record)[column.field]
        lines.append(f"| `{column.name}` | {kind} | {meaning} |")
    return "\n".join(lines)


def replaced(page: str) -> str:
    """The page with all its tables of columns generated again."""
    for name in TABLES:
        before, heading, below = page.partition(f"\n## Columns of `{name}`\n")
        table = re.search(r"^\| column .*\n(?:\|.*\n)*", below, re.MULTILINE)
        assert table, f"{PAGE} has no table below 'Columns of `{name}`'"
        below = f"{below[: table.start()]}{made(name)}\n{below[table.end() :]}"
        page = f"{before}{heading}{below}"
    return page


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
