"""The page for users of the original scripts lists the variables that have the same name here."""

from __future__ import annotations

from pathlib import Path

from pytest_ultrapar.pool.settings import SETTINGS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmark" / "from-the-scripts.md").read_text(encoding="utf-8")


def table(title: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_variables_listed_as_the_same_are_read():
    same = {row[0].strip("`") for row in table("Variables") if row[1] == "the same"}

    read = {row.variable for row in SETTINGS if row.variable}
    # Variables that the scripts did not have begin with ULTRAPAR_.
    assert same == {name for name in read if not name.startswith("ULTRAPAR_")}
