"""What docs/benchmark/tables.md says of columns and tables is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from bench_suites.workflow_results.aggregate_files import SCHEMA
from bench_suites.workflow_results.phase import ALL_PHASES

TEXT = (Path(__file__).parents[2] / "docs" / "benchmark" / "tables.md").read_text(encoding="utf-8")

TAKEN = {"phase52": "`easy`", "phase53": "`none`", "phase54": "0.8", "phase55": "`optimal`"}
"""Levels that phases share with 5.1 unless options say otherwise."""


def rows(text):
    """The cells of a table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_column_stands_there_in_order_with_unit_and_definition():
    table = rows(TEXT.split("## The aggregate")[1])
    assert [name.strip("`") for name, _, _ in table] == SCHEMA.names
    assert all(unit and definition for _, unit, definition in table)


def test_types_of_columns_fit_their_units():
    units = {name.strip("`"): unit for name, unit, _ in rows(TEXT.split("## The aggregate")[1])}
    kinds = {"name": "string", "cases": "int64", "share": "double", "time, UTC": "timestamp"}
    for field in SCHEMA:
        expected = kinds.get(units[field.name])
        assert expected is None or str(field.type).startswith(expected), field.name


def test_every_phase_stands_there_with_what_it_takes():
    (table,) = re.findall(r"\| phase \|.*?\n\n", TEXT, re.DOTALL)
    shown = {number: taken for number, _, taken, _ in rows(table)}
    assert list(shown) == [phase.number for phase in ALL_PHASES]
    for suite in ("phase51", *TAKEN):
        assert TAKEN.get(suite, "") in shown[f"5.{suite[-1]}"]
