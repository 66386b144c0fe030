"""The even split in advance: equal numbers of cases, regardless of the limits of a lane."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from bench_suites.original_scripts.split import split
from pytest_ultrapar.coordinator.policies import find_policy
from pytest_ultrapar.session.collection import case_seed
from tests.unit.policy_play import QWENS, cases, lanes_of, pool


def test_each_lane_of_a_model_gets_an_equal_share_and_the_first_lanes_the_remainder():
    matrix = pool("pools/overhead-matrix.toml")
    planned = cases(matrix.models, repeats=20)
    assignment = split(matrix.lanes, planned)
    shares = {group.lanes: len(group.cases) for group in assignment.groups}
    by_id = {lane.lane_id: lane.model for lane in matrix.lanes}
    by_model: dict[str, list[int]] = {}
    for (lane_id,), n in shares.items():
        by_model.setdefault(by_id[lane_id], []).append(n)
    assert by_model == {
        "large": [7, 7, 6],
        "medium": [7, 7, 6],
        "small": [7, 7, 6],
        "narrow": [20],
    }
    assert assignment.is_restricted


def test_each_case_is_on_one_lane_of_its_model():
    matrix = pool("pools/overhead-matrix.toml")
    planned = cases(matrix.models, repeats=7)
    dealt = Counter(case for group in split(matrix.lanes, planned).groups for case in group.cases)
    assert dealt == Counter(case.case_id for case in planned)
    models = {case.case_id: case.model for case in planned}
    for group in split(matrix.lanes, planned).groups:
        own = {lane.lane_id for lane in lanes_of(matrix, {models[case] for case in group.cases})}
        assert own.issuperset(group.lanes)


@pytest.mark.parametrize("word", ["split", "exclusive"])
def test_each_key_gets_every_difficulty(word):
    own = cases(QWENS[:1], repeats=6, task=("a", "b"), difficulty=("easy", "medium", "hard"))
    found, by_seed = pool("pools/seed003.toml"), []
    # The innermost parameter cycles like the keys.
    own.sort(key=lambda case: (case.params["task"], case.repeat))
    for run_seed in (1, 2, 2):
        drawn = [
            msgspec.structs.replace(case, seed=case_seed(case.case_id, run_seed)) for case in own
        ]
        lanes = lanes_of(found, QWENS[:1])
        made = (
            split(lanes, drawn)
            if word == "split"
            else find_policy(word, "ultra")(found, ["gw0"], lanes, drawn)
        )
        by_seed.append([group.cases for group in made.groups])
        level = {case.case_id: case.params["difficulty"] for case in drawn}
        for group in made.groups:
            assert len(group.cases) == 12
            assert len({level[case_id] for case_id in group.cases}) == 3
    assert by_seed[0] != by_seed[1] == by_seed[2]
