from __future__ import annotations

from pathlib import Path
from typing import get_args

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES, TABLE_HEADER, table_rows
from pytest_ultrapar.broker.protocol import LeaseOutcome

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"


def test_every_outcome_that_is_a_failure_has_a_class():
    assert set(CLASSES) == set(get_args(LeaseOutcome)) - {"ok", "unsent", "cancelled"}
    assert set(ANSWERED) <= set(get_args(LeaseOutcome))


def test_classes_contradict_nothing():
    for outcome, its_class in CLASSES.items():
        effects = [its_class.removes is not None, its_class.pauses, its_class.breaker is not None]
        # What is sent again needs something that keeps it from coming back at once, for ever.
        assert sum(effects) == (its_class.again != "never"), outcome
        assert its_class.costs_attempt or not its_class.budget, outcome
        assert outcome not in ANSWERED or its_class.again == "never"


def test_documentation_shows_the_table_as_it_is_in_force():
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index("| " + " | ".join(TABLE_HEADER) + " |")
    shown = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        shown.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    quoted = [(f"`{row[0]}`", *row[1:]) for row in table_rows()]
    assert shown == quoted
