"""docs/benchmark/tables.md lists the columns of the tables."""

from __future__ import annotations

from pathlib import Path

from bench_suites.workflow_results.aggregate_files import SCHEMA

TEXT = (Path(__file__).parents[2] / "docs" / "benchmark" / "tables.md").read_text(encoding="utf-8")


def rows(text):
    """The cells of a table, without its header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_column_is_listed_in_order_with_unit_and_definition():
    table = rows(TEXT.split("## The aggregate")[1])
    assert [name.strip("`") for name, _, _ in table] == SCHEMA.names
    assert all(unit and definition for _, unit, definition in table)
