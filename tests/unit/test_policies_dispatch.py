"""Waiting groups never block the cases that they wait for, in dispatch or in opening."""

from __future__ import annotations

import pytest

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.coordinator.dispatch import Dispatch, DispatchItem
from pytest_ultrapar.engine.admission import MOST_ASKING, Admission
from pytest_ultrapar.engine.episode import Work
from tests.unit.policy_play import QWENS, carry_out, cases, lanes_of, pool

QUICK = pool()
MODEL = QWENS[0]
OWN = cases([MODEL], repeats=400)
FIRST = tuple(case.case_id for case in OWN[:200])
SECOND = tuple(case.case_id for case in OWN[200:])


@pytest.mark.parametrize(
    "groups",
    [
        (Group("late", FIRST, after=("early",)), Group("early", SECOND)),
        (Group("one", FIRST, exclusive="key0"), Group("two", SECOND, exclusive="key0")),
        (Group("narrow", FIRST, at_once=1), Group("wide", SECOND)),
        (Group("delayed", FIRST, start_after_s=60.0), Group("last", SECOND, after=("delayed",))),
    ],
    ids=["after", "exclusive", "at-once", "delay"],
)
@pytest.mark.parametrize("workers", [("gw0",), ("gw0", "gw1", "gw2")])
def test_groups_in_any_order_finish(groups, workers):
    lanes = lanes_of(QUICK, [MODEL])
    moments = carry_out(QUICK, lanes, OWN, Assignment(groups=groups), workers)
    assert len([moment for moment in moments if moment]) == len(OWN)


def test_dispatch_counts_each_group_separately():
    items = [DispatchItem(n, "a", rank, f"g{rank}") for rank in (0, 1) for n in range(rank, 200, 2)]
    dispatch = Dispatch(items, seats_of={"a": 1}, home_of={})
    dispatch.add_worker("gw0")
    sent = dispatch.hand_out("gw0")
    by_group = [sum(index % 2 == rank for index in sent) for rank in (0, 1)]
    assert by_group[0] == by_group[1] < 50
    dispatch.reported("gw0", sent[-1])
    assert [index % 2 for index in dispatch.hand_out("gw0")] == [1]


def work(index, group):
    return Work(index, case_id=str(index), model="a", group=group, seed=0, start=None)


def test_opener_admits_the_first_case_of_every_line():
    admission = Admission(most_open=10)
    for index in range(100):
        admission.add(work(index, "shut"))
    while admission.next_to_ask(("a", "shut")) is not None:
        pass
    line = admission.add(work(100, "open"))
    assert admission.next_to_ask(line) is not None
    assert admission.next_to_ask(line) is None
    admission.opened(line)


def test_opener_admits_each_line_independently_up_to_the_limit():
    admission = Admission(most_open=10)
    lines = list(dict.fromkeys(admission.add(work(index, f"g{index % 3}")) for index in range(300)))
    asking = [line for line in lines for _ in range(MOST_ASKING) if admission.next_to_ask(line)]
    assert len(asking) == 10 * len(lines)
    for line in asking[:10]:
        admission.opened(line)
    assert all(admission.next_to_ask(line) is None for line in lines)
    for _ in range(3):
        admission.closed()
    assert admission.next_to_ask(lines[0]) is not None
