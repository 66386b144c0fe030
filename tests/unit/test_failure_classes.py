from __future__ import annotations

from pathlib import Path
from typing import get_args

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES, DOUBTED
from pytest_ultrapar.broker.protocol import LeaseOutcome

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"

LANE = {
    "lane": "removed",
    "key": "its key is removed",
    "key_model": "its key is removed for the model",
    "instance": "its instance is removed",
}
DOUBTS = {"bad_request": "stays; if it is the lane's first answer: checked, then "}
TRIES = {
    "free": "as long as a lane remains",
    "attempts": "up to the maximum",
    "once": "one more time",
    "reconnect": "on a new connection",
    "never": "never",
}
CONTROL = {"cut": "reduced", "pause_growth": "not raised", "no": "none"}

HEADER = (
    "outcome",
    "examples",
    "effect on the lane",
    "sent again",
    "on the same lane",
    "on another lane of the model",
    "costs an attempt",
    "retry budget",
    "effect on its limits",
)


def row(outcome, each):
    if each.removes is not None:
        lane = f"{DOUBTS.get(outcome, 'checked, then ' * (outcome in DOUBTED))}{LANE[each.removes]}"
    elif each.breaker is not None:
        after = each.breaker.after
        lane = f"opens its breaker after {after} failure{'s' * (after > 1)}"
    else:
        lane = "pauses" if each.pauses else "stays"
    same = "no"
    if each.again != "never" and each.removes is None:
        same = "after the pause" if each.pauses else "if no other is up"
    if each.again == "reconnect":
        same = "yes"
    return (
        f"`{outcome}`",
        lane,
        "once, on another lane" if outcome in DOUBTED else TRIES[each.again],
        same,
        "no" if each.again == "never" else "yes",
        said(each.costs_attempt),
        said(each.budget),
        CONTROL[each.controller],
    )


def said(flag):
    return "yes" if flag else "no"


def test_every_outcome_that_is_a_failure_has_a_class():
    assert set(CLASSES) == set(get_args(LeaseOutcome)) - {"ok", "unsent", "cancelled"}
    assert set(ANSWERED) <= set(get_args(LeaseOutcome))


def test_failure_classes_are_consistent():
    for outcome, its_class in CLASSES.items():
        effects = [its_class.removes is not None, its_class.pauses, its_class.breaker is not None]
        # A request that is sent again needs an effect that stops endless immediate retries.
        is_held = its_class.again not in {"never", "reconnect"} or outcome == "bad_request"
        assert sum(effects) == is_held, outcome
        assert its_class.costs_attempt or not its_class.budget, outcome
        assert outcome not in ANSWERED or its_class.again == "never"


def test_documentation_shows_the_table_of_failure_classes():
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index("| " + " | ".join(HEADER) + " |")
    shown = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        shown.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    without_examples = [(cells[0], *cells[2:]) for cells in shown]
    assert without_examples == [row(outcome, each) for outcome, each in CLASSES.items()]
