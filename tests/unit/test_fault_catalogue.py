"""The fault catalogue of the documentation names tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
N_ROWS = 23


def catalogue() -> list[list[str]]:
    page = (ROOT / "docs" / "fault-catalogue.md").read_text(encoding="utf-8")
    section = page.split("\n## Fault catalogue\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def named() -> set[str]:
    return {name for row in catalogue() for name in re.findall(r"`(tests/[^`]+)`", row[3])}


def test_every_row_stands_in_the_catalogue_with_its_tests_and_result():
    rows = catalogue()
    assert [row[0] for row in rows] == [str(number) for number in range(1, N_ROWS + 1)]
    for number, fault, must_hold, tests, result in rows:
        assert fault, number
        assert must_hold, number
        assert tests.startswith("`tests/") or result.startswith("does not apply: "), number
        assert result, number


def test_every_test_that_the_catalogue_names_is_there():
    for name in named():
        path, _, function = name.partition("::")
        assert function.startswith("test_"), name
        assert function in functions_of(ROOT / path), name


def test_every_run_against_a_fault_stands_in_the_catalogue():
    there = {
        f"tests/faults/{path.name}::{function}"
        for path in (ROOT / "tests" / "faults").glob("test_*.py")
        for function in functions_of(path)
        if function.startswith("test_")
    }
    assert there - named() == set()
