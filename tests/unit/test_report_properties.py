"""Values of `record_property` stay unchanged, except for the secrets in them."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.session.masking import redact

CANARY = "sk-canary"


class Score(NamedTuple):
    value: float
    why: Any


class Holder:
    def __init__(self, text):
        self.text = text

    def __str__(self):
        return f"Holder of {self.text}"


class Unshown:
    def __str__(self):
        raise ValueError


def endless():
    rows = []
    rows.append(rows)
    return rows


def nested(depth, innermost):
    for _ in range(depth):
        innermost = [innermost]
    return innermost


def masked(value):
    """The value of a property after redaction."""
    report = pytest.TestReport(
        "test_a.py::test_a",
        ("test_a.py", 1, "test_a"),
        {},
        "passed",
        None,
        "call",
        user_properties=[("name", value)],
    )
    redact(report, None, lambda text: text.replace(CANARY, "***"))
    ((_, after),) = report.user_properties
    return after


@pytest.mark.parametrize(
    "value",
    [
        Score(0.5, "good"),
        OrderedDict(a=(1, 2)),
        {"a": [{"b", "c"}]},
        b"bytes",
        Holder("nothing"),
        Unshown(),
        pytest.param(endless(), id="endless"),
        pytest.param(nested(5_000, "text"), id="deep"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_value_without_secrets_is_the_same_object(value):
    assert masked(value) is value


@pytest.mark.parametrize(
    "value",
    [
        CANARY,
        Score(0.5, CANARY),
        [Score(0.5, (CANARY,))],
        {"a": {"b": CANARY}},
        {CANARY: 1},
        {CANARY},
        PurePosixPath(CANARY),
        Holder(CANARY),
        CANARY.encode(),
        pytest.param(nested(500, CANARY), id="deep"),
        [endless(), CANARY],
    ],
    ids=lambda one: f"{type(one).__name__}-{one}",
)
def test_secrets_are_removed_from_values_of_any_type(value):
    assert CANARY not in str(masked(value))


def test_named_tuples_stay_tuples():
    assert masked(Score(0.5, f"with {CANARY}")) == (0.5, "with ***")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_plain_data_without_secrets_is_the_same_object(value):
    assert masked(value) is value
