"""The arguments of `grade`."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_ultrapar.session import prefetch
from pytest_ultrapar.session.grading import Grader
from pytest_ultrapar.session.prefetch import CaseState, Graded


@pytest.fixture
def graded():
    """Call `grade` once; return the noted grade."""

    def call(*args, **named):
        state = CaseState(prefetch, "case0", None)
        Grader(state)(*args, **named)
        return state.graded

    return call


@pytest.mark.parametrize("how", [("why",), ()])
@pytest.mark.parametrize(
    ("outcome", "noted"),
    [
        (True, "solved"),
        (False, "unsolved"),
        (np.float64(0.9) > 0.5, "solved"),
        ("partial", "partial"),
        (SimpleNamespace(outcome="partial", scores={}), "partial"),
        (SimpleNamespace(outcome=False, scores={}), "unsolved"),
        ("scored", "scored"),
        (None, "scored"),
        (SimpleNamespace(outcome=None, scores={}), "scored"),
    ],
)
def test_grade_takes_an_outcome_and_a_reason(graded, outcome, noted, how):
    scores = {"style": 7.0} if noted == "scored" else {}
    assert graded(outcome, *how, **scores) == Graded(noted, scores, None, *(how or [None]))


def test_half_a_surrogate_pair_is_escaped(graded):
    found = graded(True, "half \ud83d of it", labels={"\ud83d": "\ud83d"})
    assert (found.reason, found.labels) == ("half \\ud83d of it", {"\\ud83d": "\\ud83d"})


def test_grade_takes_its_arguments_by_name(graded):
    assert graded(outcome="solved", reason="why", steps=3) == Graded(
        "solved", {"steps": 3.0}, None, "why"
    )


def test_scores_are_numbers_of_any_library(graded):
    numbers = {"a": np.float32(0.5), "b": np.int64(2), "c": Decimal("0.25"), "d": np.True_}
    assert graded(True, **numbers).scores == {"a": 0.5, "b": 2.0, "c": 0.25, "d": 1.0}


@pytest.mark.parametrize("value", ["1", None, float("nan"), 10**400, 1j, [1], np.array([1, 2])])
def test_score_that_is_not_a_finite_number_is_refused_by_name(graded, value):
    with pytest.raises(ValueError, match=r"got steps=.*; a score must be a finite number"):
        graded(True, steps=value)


@pytest.mark.parametrize("outcome", [1, 0.5, None, "passed", SimpleNamespace(outcome="solved")])
def test_invalid_outcome_is_refused(graded, outcome):
    with pytest.raises((TypeError, ValueError), match=r"grade\(\) got "):
        graded(outcome)


def test_labels_are_stored_as_text(graded):
    labels = {"a": "B", "b": 3, "c": np.int64(4), "d": False, "e": np.str_("x"), "f": 0.5}
    noted = {"a": "B", "b": "3", "c": "4", "d": "False", "e": "x", "f": "0.5"}
    assert graded(True, labels=labels).labels == noted
    assert {type(text) for text in graded(True, labels=labels).labels.values()} == {str}
    verdict = SimpleNamespace(outcome="solved", scores={}, labels={"a": "B"})
    assert graded(verdict).labels == {"a": "B"}
    assert graded(verdict, labels={"a": "C"}).labels == {"a": "C"}


@pytest.mark.parametrize("labels", [{"a": None}, {"a": ["B"]}, {"a": float("nan")}, {1: "B"}, "B"])
def test_invalid_labels_are_refused(graded, labels):
    with pytest.raises(TypeError, match=r"grade\(\) got (the label|labels=)"):
        graded(True, labels=labels)
