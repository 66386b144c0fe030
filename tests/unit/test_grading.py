"""What `grade` takes, and what of a wrong call is seen before any answer is paid."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_ultrapar.session import prefetch
from pytest_ultrapar.session.grading import Grader, call_faults
from pytest_ultrapar.session.prefetch import CaseState, Graded


@pytest.fixture
def graded():
    """What is noted of one call of `grade`."""

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
    ],
)
def test_grade_takes_an_outcome_and_a_reason(graded, outcome, noted, how):
    assert graded(outcome, *how) == Graded(noted, {}, None, *(how or [None]))


def test_grade_takes_its_arguments_by_name(graded):
    assert graded(outcome="solved", reason="why", steps=3) == Graded(
        "solved", {"steps": 3.0}, None, "why"
    )


def test_scores_are_numbers_of_any_library(graded):
    numbers = {"a": np.float32(0.5), "b": np.int64(2), "c": Decimal("0.25"), "d": np.True_}
    assert graded(True, **numbers).scores == {"a": 0.5, "b": 2.0, "c": 0.25, "d": 1.0}


@pytest.mark.parametrize("value", ["1", None, float("nan"), 10**400, 1j, [1], np.array([1, 2])])
def test_score_that_is_no_finite_number_is_named(graded, value):
    with pytest.raises(ValueError, match=r"got steps=.*; a score must be a finite number"):
        graded(True, steps=value)


@pytest.mark.parametrize("outcome", [1, 0.5, None, "passed", SimpleNamespace(outcome="solved")])
def test_outcome_that_is_none_is_named(graded, outcome):
    with pytest.raises((TypeError, ValueError), match=r"grade\(\) got "):
        graded(outcome)


def wrong(grade, answer, others):
    grade(answer == "a", f"{answer} it is", steps=len(answer))
    grade(*others)
    grade("solved", "why", **others)
    answer.grade("passed")
    if answer:
        grade("passed")
    grade("solved", "why", 3)
    [grade(reason="why") for _ in others]
    grade("solved", steps="many")
    grade("solved" if answer else "partial" if others else "failed")


def test_calls_that_can_only_fail_are_found_in_the_text_of_a_test():
    first = wrong.__code__.co_firstlineno
    faults = sorted(call_faults(wrong), key=lambda fault: int(fault.split(":")[1]))
    places = [fault.split(": ")[0] for fault in faults]
    assert places == [f"{__file__}:{first + n}" for n in (6, 7, 8, 9, 10)]
    for fault, said in zip(
        faults,
        (
            "outcome 'passed'; allowed are solved",
            "too many positional arguments",
            "missing a required argument: 'outcome'",
            "steps='many'; a score must be a finite number",
            "outcome 'failed'; allowed",
        ),
        strict=True,
    ):
        assert said in fault


def test_function_without_a_text_has_no_faults():
    namespace = {}
    exec("def test(grade): grade('passed')", namespace)
    assert list(call_faults(namespace["test"])) == []
