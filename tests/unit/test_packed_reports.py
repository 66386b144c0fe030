"""A report's data packed for execnet comes out as it went in."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from execnet.gateway_base import dumps, loads
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.session.reports import pack, unpack

DATA = {
    "nodeid": "test_x.py::test[\u00e9]",
    "location": ("test_x.py", 3, "test"),
    "keywords": {"test": 1},
    "longrepr": ("test_x.py", 3, "Skipped: why"),
    "sections": [("Captured stdout", "text")],
    "user_properties": [],
    "duration": 0.25,
    "when": "call",
    "item_index": 7,
}


def test_packed_report_survives_execnet_with_its_tuples():
    assert unpack(loads(dumps(pack(DATA)))) == DATA


def test_report_that_was_not_packed_is_left_alone():
    assert unpack(DATA) is None


@pytest.mark.parametrize("strange", [object(), DATA.keys()])
def test_report_that_cannot_be_packed_goes_as_it_is(strange):
    data = {**DATA, "strange": strange}
    assert pack(data) is data


class Text(str):
    """As enum members and many libraries' own texts are."""


class Number(int):
    pass


@pytest.mark.parametrize(
    "strange",
    [
        np.float64(0.5),
        np.float32(0.5),
        np.int64(3),
        np.bool_(True),
        np.str_("text"),
        np.array([0.5, 1.0]),
        array("d", [0.5]),
        bytearray(b"ab"),
        memoryview(b"ab"),
        Text("text"),
        Number(3),
        ...,
        StopIteration,
        compile("1", "<test>", "eval"),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize(
    "place",
    [lambda one: one, lambda one: [("score", one)], lambda one: {"a": (one,)}],
    ids=["bare", "in a pair", "in a mapping"],
)
def test_report_with_anything_but_plain_values_goes_as_it_is(strange, place):
    # marshal takes whatever has a buffer, and gives bytes back.
    data = {**DATA, "user_properties": place(strange)}
    assert pack(data) is data


def test_report_with_a_strange_key_goes_as_it_is():
    data = {**DATA, "keywords": {np.str_("test"): 1}}
    assert pack(data) is data


def test_report_nested_without_end_goes_as_it_is():
    endless = []
    endless.append(endless)
    data = {**DATA, "user_properties": endless}
    assert pack(data) is data


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@given(PLAIN)
def test_plain_values_come_out_with_their_types(value):
    packed = pack({"value": value})
    assert set(packed) == {"ultrapar_packed"}
    assert repr(unpack(packed)) == repr({"value": value})
