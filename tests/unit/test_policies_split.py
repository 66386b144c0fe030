"""The even split in advance: equal shares by number, whatever a lane can take."""

from __future__ import annotations

from collections import Counter

from bench_suites.original_scripts.split import split
from tests.unit.policy_play import cases, lanes_of, pool


def test_each_lane_of_a_model_gets_an_equal_share_and_the_first_ones_the_rest():
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
