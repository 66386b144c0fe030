"""The assignment of the hook is used, or refused with the reason."""

from __future__ import annotations

import pytest

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.coordinator.policies import checked
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.records import Case
from tests.unit.pool_texts import real

CASES = [Case(k, f"case{k}", "", "s", "m", 0, {}, 0) for k in range(4)]


@pytest.fixture
def lanes(load):
    return load(real()).lanes


def test_valid_assignment_is_returned(lanes):
    home = {"gw0": (lanes[0].lane_id,)}
    groups = (Group("a", ("case0", "case1"), after=("b",)), Group("b", ("case2",)))
    assignment = Assignment(home=home, groups=groups)
    assert checked(assignment, lanes=lanes, cases=CASES) is assignment


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "must return an Assignment .got NoneType."),
        (
            Assignment(home={"gw0": ("no",)}),
            "the home of gw0 contains the unknown lane 'no'; the run's lanes are p/m",
        ),
        (Assignment(groups=(Group("", ("case0",)),)), "unique and not empty .got ''."),
        (Assignment(groups=(Group("a", ("case0",)), Group("a", ()))), "unique .* .got 'a'."),
        (
            Assignment(groups=(Group("a", ("case0",), after=("c",)), Group("b", ()))),
            "group 'a' waits for 'c', which does not exist; the groups are a, b",
        ),
        (Assignment(groups=(Group("a", ("other",)),)), "'a' has cases that are not in the run"),
        (Assignment(groups=(Group("a", ("case0",)), Group("b", ("case0",)))), "'b' has cases that"),
        (Assignment(groups=(Group("a", (), after=("a",)),)), "wait for each other"),
    ],
)
def test_invalid_assignment_is_refused(lanes, given, said):
    with pytest.raises(ConfigError, match=said):
        checked(given, lanes=lanes, cases=CASES)
