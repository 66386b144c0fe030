"""The page for those who come from the scripts names what there is here, and all of theirs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pytest_ultrapar.broker.assignment import check_assignment
from pytest_ultrapar.pool.settings import SETTINGS
from tests.unit.policy_play import QWENS, cases

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmark" / "from-the-scripts.md").read_text(encoding="utf-8")


def table(title: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_variables_that_are_the_same_here_are_those_that_are_read():
    same = {row[0].strip("`") for row in table("Variables") if row[1] == "the same"}

    read = {row.variable for row in SETTINGS if row.variable}
    # Those that the scripts did not have bear our name.
    assert same == {name for name in read if not name.startswith("ULTRAPAR_")}


def test_staggered_start_of_shards_has_a_line_and_a_policy_that_works():
    (line,) = [row for row in table("Flags") if "0, 30 and 20 s" in row[0]]
    assert "start_after_s" in line[1]
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    conftest: dict[str, Any] = {}
    exec(code, conftest)
    assert conftest["pytest_ultrapar_policies"]() == ["staggered"]
    assign = conftest["pytest_ultrapar_assign"]
    own = cases(QWENS, "phase51", 4)
    made = assign(cases=own, policy="staggered")
    check_assignment(made, [])
    assert [group.start_after_s for group in made.groups] == [0, 30, 20]
    assert [len(group.cases) for group in made.groups] == [7, 7, 6]
    assert {case_id for group in made.groups for case_id in group.cases} == {
        case.case_id for case in own
    }
    assert assign(cases=own, policy="even") is None
