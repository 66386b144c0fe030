"""The serial sample before an assignment: every case once, the sample first and alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.coordinator.policies import POLICIES, find_policy
from pytest_ultrapar.coordinator.serial_sample import draw_sample, with_serial_sample
from pytest_ultrapar.errors import ConfigError
from tests.examples import examples
from tests.unit.policy_play import assert_sound, carry_out, cases, lanes_of, pool

MODELS = ("DeepSeek-V3-0324", "qwen2.5-72b-instruct", "qwen2.5-3b-instruct")
POOL = pool()
LANES = lanes_of(POOL, MODELS)


@st.composite
def assignments(draw: st.DrawFn) -> tuple[list, Assignment, int]:
    """Cases in groups that wait for earlier groups, and the size of a sample."""
    planned = cases(MODELS, repeats=draw(st.integers(1, 5)))
    n_groups = draw(st.integers(0, 4))
    names = ["g0", "g1", "g2", "g3"]
    member = draw(st.lists(st.integers(0, n_groups), min_size=len(planned), max_size=len(planned)))
    groups = [
        Group(
            names[n],
            tuple(case.case_id for case, own in zip(planned, member, strict=True) if own == n),
            after=tuple(name for name in names[:n] if draw(st.booleans())),
            exclusive=draw(st.sampled_from([None, "word"])),
            at_once=draw(st.sampled_from([None, 1, 3])),
        )
        for n in range(n_groups)
    ]
    return planned, Assignment(groups=tuple(groups)), draw(st.integers(1, len(planned) - 1))


@examples(60)
@given(assignments(), st.integers(0, 3))
def test_every_case_runs_once_and_the_sample_before_all_others(drawn, seed):
    planned, assignment, n = drawn
    sample = draw_sample(planned, n, seed)
    changed = with_serial_sample(assignment, planned, LANES, sample)
    assert_sound(changed, LANES, planned)
    assert sorted(one for group in changed.groups for one in group.cases) == sorted(
        case.case_id for case in planned
    )
    moments = carry_out(POOL, LANES, planned, changed)
    assert {case_id for moment in moments for case_id in moment} == {
        case.case_id for case in planned
    }
    alone = [moment for moment in moments if set(moment) & set(sample)]
    assert all(len(moment) == 1 for moment in alone)
    last = max(at for at, moment in enumerate(moments) if set(moment) & set(sample))
    assert all(set(moment) <= set(sample) for moment in moments[:last])
    of_model: dict[str, set[str]] = {}
    for moment in alone:
        for lane in moment.values():
            of_model.setdefault(lane.model, set()).add(lane.lane_id)
    assert all(len(lanes) == 1 for lanes in of_model.values())


@pytest.mark.parametrize("word", [name.replace("N", "2") for name in POLICIES])
def test_rules_of_policies_apply_after_the_sample(word):
    planned = cases(MODELS, repeats=4)
    before = find_policy(word, "ultra")(POOL, ("gw0", "gw1"), LANES, planned)
    sample = draw_sample(planned, 5, 0)
    after = with_serial_sample(before, planned, LANES, sample)
    assert after.home == before.home
    rules = {group.name: group for group in after.groups}
    for group in before.groups:
        now = rules[group.name]
        assert now.after == (after.groups[0].name, *group.after)
        assert (now.exclusive, now.at_once, now.lanes) == (
            group.exclusive,
            group.at_once,
            group.lanes,
        )
        assert set(now.cases) == set(group.cases) - set(sample)


def test_sample_depends_only_on_ids_and_seed():
    planned = cases(MODELS, repeats=20)
    mixed = random.Random(1).sample(planned, len(planned))
    assert draw_sample(planned, 30, 7) == draw_sample(mixed, 30, 7)
    assert draw_sample(planned, 30, 7) != draw_sample(planned, 30, 8)
    assert set(draw_sample(planned, 10, 7)) < set(draw_sample(planned, 30, 7))


def test_sample_is_drawn_evenly_from_all_models():
    planned = cases(MODELS, repeats=200)
    model_of = {case.case_id: case.model for case in planned}
    drawn = [model_of[case_id] for case_id in draw_sample(planned, 300, 0)]
    assert all(70 <= drawn.count(model) <= 130 for model in MODELS)


@pytest.mark.parametrize(("n", "n_cases"), [(5, 3), (3, 3), (1, 1)])
def test_sample_of_all_cases_is_refused(n, n_cases):
    with pytest.raises(ConfigError, match=f"baseline {n}: this run has only {n_cases} case"):
        draw_sample(cases(MODELS[:1], repeats=n_cases), n, 0)
