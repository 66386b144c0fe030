"""The number of cases that a host claims, and its refusal to join a different run."""

from dataclasses import replace

import pytest

from pytest_ultrapar.broker.assignment import Assignment, Group, check_assignment
from pytest_ultrapar.broker.protocol import NO_PART, BrokerStatus, GroupProgress, ModelProgress
from pytest_ultrapar.cluster.claim_protocol import GroupRule
from pytest_ultrapar.cluster.claim_thread import (
    FIRST,
    LEAST,
    ClaimSize,
    dead_host_message,
    lanes_in_common,
)
from pytest_ultrapar.cluster.host_counts import HostCounts
from pytest_ultrapar.cluster.run_identity import CaseLine, NumberedCases, RunIdentity, refuse_other
from pytest_ultrapar.pool.model import Lane
from pytest_ultrapar.records import Case


@pytest.mark.parametrize(
    ("name", "n", "words"),
    [
        (
            "ci-3",
            1,
            "host ci-3 has been silent for 15 s; other hosts are taking over its unfinished cases",
        ),
        (
            "ci-3",
            2,
            "host ci-3 and 1 other host have been silent for 15 s; live hosts are taking over",
        ),
        ("\x1b[2J\n", 3, "host \\x1b[2J\\n and 2 other hosts have been silent"),
        ("x" * 99, 1, "xx..xx"),
    ],
)
def test_message_names_a_host_that_died(name, n, words):
    assert words in dead_host_message(name, n)


def test_free_seats_are_filled_in_a_few_rounds():
    claim_size, claimed, n_looks = ClaimSize([0]), 0, 0
    while claimed < 500:
        claimed += sum(
            n for _, n in claim_size.wants([claimed], [claimed], [10_000 - claimed], [10_000])
        )
        n_looks += 1
    assert n_looks <= 7


def test_host_claims_as_many_cases_ahead_as_begin_in_two_rounds():
    claim_size = ClaimSize([0])
    assert claim_size.wants([0], [0], [100], [50]) == [(0, FIRST)]
    assert claim_size.wants([FIRST], [0], [92], [50]) == []
    # Seats are free: claim twice as many as in the last round.
    assert claim_size.wants([FIRST], [FIRST], [92], [50]) == [(0, 2 * FIRST)]
    assert claim_size.wants([3 * FIRST], [FIRST], [76], [50]) == []
    # No seat is free: claim as many as begin in two rounds.
    assert claim_size.wants([24], [23], [76], [0]) == [(0, 10 - 1)]
    assert claim_size.wants([33], [23], [67], [0]) == []


def test_lines_with_the_same_limits_are_claimed_ahead_as_one():
    """Waiting cases of one line suffice for all, and the longest line gives the most cases."""
    claim_size = ClaimSize([0, 0, 0, 3])
    assert claim_size.wants([0] * 4, [0] * 4, [3, 9, 0, 5], [9] * 4) == [(1, 7), (0, 1), (3, 5)]
    claim_size = ClaimSize([0, 0])
    assert claim_size.wants([4, 4], [4, 4], [50, 50], [9, 99]) == [(0, 8), (1, 8)]
    assert claim_size.wants([12, 12], [5, 4], [42, 42], [9, 99]) == []
    assert claim_size.wants([12, 12], [12, 11], [42, 42], [9, 99]) == [(0, 14), (1, 13)]


def test_host_claims_no_more_than_it_can_send_and_nothing_without_a_share():
    assert ClaimSize([0]).wants([0], [0], [100], [3]) == [(0, 3)]
    assert ClaimSize([0]).wants([0], [0], [100], [0]) == [(0, LEAST)]
    assert ClaimSize([0]).wants([0], [0], [100], [NO_PART]) == []


def case(index, model):
    return Case(
        index=index, case_id=f"{index:016x}", nodeid=f"t::{index}", suite="s", model=model,
        repeat=0, params={}, seed=0,
    )  # fmt: skip


def test_cases_of_a_model_are_numbered_together():
    numbered = NumberedCases([case(i, "ab"[i % 2]) for i in range(5)], ["b", "a", "none"])
    assert [one.index for one in numbered.cases] == [1, 3, 0, 2, 4]
    assert numbered.ranges == [(0, 2), (2, 5), (5, 5)]
    assert [numbered.line_of(number) for number in range(5)] == [0, 0, 1, 1, 1]


def identity(**changed):
    same = {
        "version": "1", "seed": 0, "mode": "ultra", "rate_mode": "fixed", "policy": "even",
        "groups": "",
        "shard": "", "pool": "p", "models": ("m",), "n_cases": 3, "suite": "s", "order": "o",
        "numbers": "x",
        "data": {"tasks": "x"},
    }  # fmt: skip
    return RunIdentity(**same | changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 1}, "the run seed (--ultrapar-seed): 0 here, 1 there"),
        ({"version": "2"}, "pytest-ultrapar's version: 1 here, 2 there"),
        ({"pool": "q"}, "the content of the pool file differs"),
        ({"models": ("m", "n")}, "the models: m here, m, n there"),
        ({"n_cases": 4, "suite": "t", "order": "u"}, "the number of cases: 3 here, 4 there"),
        ({"suite": "t", "order": "u"}, "the cases differ"),
        ({"order": "u"}, "the order in which pytest collects the cases differs"),
        ({"groups": "g"}, "the groups of the policy differ"),
        ({"data": {}}, "the tasks: x here, none there"),
    ],
)
def test_refusal_names_the_difference_between_runs(changed, said):
    error = refuse_other("night", identity(), identity(**changed).text())
    assert f'differs from the hosts of run "night": {said};' in str(error)


# -- groups ----------------------------------------------------------------------------------------


def grouped(groups, n=12, models="ab"):
    cases = [case(i, models[i % len(models)]) for i in range(n)]
    return NumberedCases(cases, [*models, "none"], groups)


def ids(*numbers):
    return tuple(f"{number:016x}" for number in numbers)


def lane(model, key="key"):
    return Lane(f"{model}/{key}", "p", model, model, key, (), 0.0, 1.0)


def test_ungrouped_cases_of_models_with_the_same_limits_are_claimed_as_one():
    def lanes(model, *paths):
        return [replace(lane(model, f"key{n}"), limits=path) for n, path in enumerate(paths)]

    pool = [
        *lanes("a", ("p", "p/key0"), ("p", "p/key1")),
        *lanes("b", ("p", "p/key1"), ("p", "p/key0")),
        *lanes("c", ("p", "p/key0")),
        *lanes("d", ("p", "p/key0"), ("p", "p/key1")),
        *lanes("free", ()),
        *lanes("unlimited", ()),
    ]
    models = ("a", "b", "c", "d", "free", "unlimited")
    lines = [CaseLine("a", 0, "x"), CaseLine("b", 0, "y"), *map(CaseLine, models), CaseLine("gone")]
    assert lanes_in_common(lines, pool) == [0, 1, 2, 2, 4, 2, 6, 7, 8]


def test_cases_are_numbered_by_group_and_model_with_ungrouped_cases_last():
    numbered = grouped((Group("late", ids(5, 7)), Group("mixed", ids(0, 1, 2, 3))))
    assert [(line.name, line.model) for line in numbered.lines] == [
        ("late", "b"), ("mixed (a)", "a"), ("mixed (b)", "b"), ("", "a"), ("", "b"), ("", "none"),
    ]  # fmt: skip
    found = [[one.index for one in numbered.cases[a:b]] for a, b in numbered.ranges]
    assert found == [[5, 7], [0, 2], [1, 3], [4, 6, 8, 10], [9, 11], []]
    for line, (first, last) in enumerate(numbered.ranges):
        assert {numbered.line_of(number) for number in range(first, last)} <= {line}


def test_server_gets_the_rules_of_groups_and_the_own_broker_only_their_lanes():
    groups = (
        Group("m", ids(0, 2), exclusive="key", at_once=3),
        Group("none", (), exclusive="key"),
        Group("n", ids(1), after=("m", "none"), start_after_s=1.5, lanes=("b/key1",)),
    )
    numbered = grouped(groups)
    assert numbered.rules() == [
        GroupRule(lines=(0, 1), lock=0, at_once=3),
        GroupRule(lines=(1, 1), lock=0),
        GroupRule(lines=(1, 2), after=(0, 1), start_after_ms=1500),
    ]
    lanes = [lane("a"), lane("b", "key0"), lane("b", "key1")]
    own = numbered.own_assignment(Assignment({"gw0": ("a/key",)}, groups), lanes)
    again = NumberedCases(numbered.cases, numbered.models, own.groups)
    assert again.numbers == numbered.numbers
    assert own.home == {"gw0": ("a/key",)}
    assert own.groups == (Group("m", ids(0, 2), ("a/key",)), Group("n", ids(1), ("b/key1",)))
    check_assignment(own, [one.lane_id for one in lanes])


def status(**changed):
    nothing = {"now_s": 0.0, "in_flight": 0, "peak_in_flight": 0, "open_episodes": 0, "lanes": []}
    return BrokerStatus(**nothing | {"ended_episodes": 0} | changed)


def test_ended_episode_is_not_open_before_its_report():
    counts = HostCounts(grouped((Group("x", ids(0, 2, 4)),)))
    for number in (0, 1, 2):
        counts.claim(number)
    assert counts.open_of() == [(0, 3)]
    counts.update(status(ended_episodes=1, groups=[GroupProgress("x", begun=2, ended=1, room=5)]))
    assert counts.open_of() == [(0, 2)]
    assert counts.begun(counts.n_open())[0] == 2
    assert counts.room[0] == 5
    assert counts.n_open() == 2


def test_reported_case_is_over_even_if_the_broker_never_saw_it():
    counts = HostCounts(grouped((Group("x", ids(0, 2, 4)),)))
    counts.claim(0)
    counts.report(0, "infra")
    assert counts.open_of() == []
    assert counts.begun(counts.n_open())[0] == 1


def test_ungrouped_cases_are_counted_apart_from_groups():
    counts = HostCounts(grouped((Group("x", ids(0, 2)),)))
    for number in range(4):
        counts.claim(number)
    model = ModelProgress("a", ended={1: 1}, open={1: 2}, seconds={}, under_way={})
    progress = GroupProgress("x", begun=2, ended=1, room=NO_PART)
    counts.update(status(ended_episodes=2, models=[model], groups=[progress], room={"a": 3}))
    assert counts.claimed[:2] == [2, 2]
    assert counts.begun(counts.n_open())[:2] == [2, 1]
    assert counts.room[:2] == [NO_PART, 3]
    assert counts.n_open() == 2


@pytest.mark.parametrize(("n_open_episodes", "n_ended", "begun"), [(0, 4, 4), (1, 2, 3), (0, 1, 2)])
def test_case_that_ended_without_a_request_is_not_ahead_before_its_report(
    n_open_episodes, n_ended, begun
):
    """A worker keeps its last item until it gets another one, so it reports that item late."""
    counts = HostCounts(grouped(()))
    for number in range(4):
        counts.claim(number)
    for number in range(2):
        counts.report(number, "error")
    counts.update(status(open_episodes=n_open_episodes, ended_episodes=n_ended))
    assert counts.begun(counts.n_open())[0] == begun
    # Nothing has been in flight for a while, so no case is ahead.
    assert counts.begun(0)[0] == 4


def test_hosts_with_other_groups_have_the_same_order_but_other_numbers():
    one, two = grouped((Group("x", ids(0, 1)),)), grouped((Group("x", ids(0)),))
    assert one.order == two.order == grouped(()).order
    assert one.groups != two.groups
    assert one.numbers != two.numbers
    assert grouped(()).groups == ""


@pytest.mark.parametrize("theirs", ["", "{}", "\x00", "[1]", '{"version": 1}'])
def test_record_of_another_program_is_refused(theirs):
    assert "is from another version of pytest-ultrapar, or from another program" in str(
        refuse_other("night", identity(), theirs)
    )
