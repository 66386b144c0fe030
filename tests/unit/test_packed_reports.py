"""A report's data packed for execnet comes out as it went in."""

from __future__ import annotations

import pytest
from execnet.gateway_base import dumps, loads

from pytest_ultrapar.packed_reports import pack, unpack

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
