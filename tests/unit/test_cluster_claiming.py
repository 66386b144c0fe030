"""How many cases a host claims, and what it says when others run something else."""

import msgspec
import pytest

from pytest_ultrapar.broker.protocol import NO_PART
from pytest_ultrapar.cluster.claiming import FIRST, LEAST, Appetite
from pytest_ultrapar.cluster.identity import NumberedCases, RunIdentity, refuse_other
from pytest_ultrapar.records import Case


def test_free_seats_are_filled_in_a_few_looks():
    appetite, claimed, n_looks = Appetite(1), 0, 0
    while claimed < 500:
        claimed += sum(
            n for _, n in appetite.wants([claimed], [claimed], [10_000 - claimed], [10_000])
        )
        n_looks += 1
    assert n_looks <= 7


def test_as_many_are_claimed_ahead_as_begin_in_two_looks():
    appetite = Appetite(1)
    assert appetite.wants([0], [0], [100], [50]) == [(0, FIRST)]
    assert appetite.wants([FIRST], [0], [92], [50]) == []
    assert appetite.wants([FIRST], [FIRST], [92], [0]) == [(0, 2 * FIRST)]
    assert appetite.wants([3 * FIRST], [FIRST], [76], [0]) == []
    begun = 3 * FIRST - 1
    assert appetite.wants([3 * FIRST], [begun], [76], [0]) == [(0, 2 * (begun - FIRST) - 1)]
    assert appetite.wants([3 * FIRST], [begun], [76], [0]) == [(0, LEAST - 1)]


def test_nobody_claims_what_is_not_there():
    assert Appetite(2).wants([0, 0], [0, 0], [3, 0], [9, 9]) == [(0, 3)]


def test_a_host_claims_no_more_than_it_could_send_and_nothing_without_a_part():
    assert Appetite(1).wants([0], [0], [100], [3]) == [(0, 3)]
    assert Appetite(1).wants([0], [0], [100], [0]) == [(0, LEAST)]
    assert Appetite(1).wants([0], [0], [100], [NO_PART]) == []


def case(index, model):
    return Case(
        index=index, case_id=f"{index:016x}", nodeid=f"t::{index}", suite="s", model=model,
        repeat=0, params={}, seed=0,
    )  # fmt: skip


def test_cases_of_a_model_stand_together():
    numbered = NumberedCases([case(i, "ab"[i % 2]) for i in range(5)], ["b", "a", "none"])
    assert [one.index for one in numbered.cases] == [1, 3, 0, 2, 4]
    assert numbered.ranges == [(0, 2), (2, 5), (5, 5)]
    assert [numbered.line_of(number) for number in range(5)] == [0, 0, 1, 1, 1]


def identity(**changed):
    same = {
        "version": "1", "seed": 0, "mode": "ultra", "rate_mode": "fixed", "policy": "even",
        "groups": "",
        "shard": "", "pool": "p", "models": ("m",), "n_cases": 3, "suite": "s", "order": "o",
        "data": {"tasks": "x"},
    }  # fmt: skip
    return RunIdentity(**same | changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 1}, "the run seed (--ultrapar-seed): 0 here, 1 there"),
        ({"version": "2"}, "pytest-ultrapar's version: 1 here, 2 there"),
        ({"pool": "q"}, "the pool file's content is not the same"),
        ({"models": ("m", "n")}, "the models: m here, m, n there"),
        (
            {"n_cases": 4, "suite": "t", "order": "u"},
            "the number of cases: 3 here, 4 there",
        ),
        ({"suite": "t", "order": "u"}, "the cases are not the same"),
        ({"order": "u"}, "the order in which pytest collects the cases is not the same"),
        ({"groups": "g"}, "the groups of the policy are not the same"),
        ({"data": {}}, "the tasks: x here, none there"),
    ],
)
def test_what_differs_is_named(changed, said):
    error = refuse_other("night", identity(), identity(**changed).text())
    assert f"began with something else: {said};" in str(error)


@pytest.mark.parametrize("theirs", ["", "{}", "\x00", "[1]", '{"version": 1}'])
def test_what_another_writer_left_is_refused(theirs):
    assert "was not written by pytest-ultrapar" in str(refuse_other("night", identity(), theirs))


def test_text_of_others_is_shown_harmlessly():
    theirs = identity(policy="\x1b[31m" + "x" * 500).text()
    said = str(refuse_other("night", identity(), theirs))
    assert "\x1b" not in said
    assert len(said) < 400


def test_the_same_run_has_the_same_text():
    assert identity(data={"a": "1", "b": "2"}).text() == identity(data={"b": "2", "a": "1"}).text()
    assert msgspec.json.decode(identity().text(), type=RunIdentity) == identity()
