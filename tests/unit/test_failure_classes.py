from __future__ import annotations

from typing import get_args

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES
from pytest_ultrapar.broker.protocol import LeaseOutcome


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
