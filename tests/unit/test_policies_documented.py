"""The original scripts' policies and mode `phase` match script seeds 000 and 002, and run."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_suites.original_scripts.group_key import group_key
from bench_suites.original_scripts.key_rule import any_key, bind, lanes_on_key
from bench_suites.original_scripts.model_key import key_of_model, model_key
from bench_suites.original_scripts.phase_mode import phase_assignment
from bench_suites.original_scripts.process import PART_OF
from bench_suites.original_scripts.waves import VARIANTS
from pytest_ultrapar import ConfigError
from tests.unit.policy_play import (
    AZURE,
    QWENS,
    assert_sound,
    carry_out,
    cases,
    groups_of,
    lanes_of,
    most_models,
    pool,
    pool_of_two_keys,
)

QUICK = pool()
TWO_KEYS = pool_of_two_keys()
GROUPS = ("structure", "operation", "logic")
OPEN = (*AZURE, *QWENS)
PARTS = {
    "phase51": {"task_type": ("a", "b")},
    "phase52": {"difficulty": ("very_easy", "medium")},
    "phase53": {"flaw_group": GROUPS},
    "phase54": {"tool_success_rate": (0.9, 0.7)},
    "phase55": {"prompt_type": ("baseline", "cot")},
}


def of_phase(suite, models=OPEN, repeats=1):
    return cases(models, suite, repeats, **PARTS[suite])


def phase(own, found=QUICK, rule=model_key, **how):
    lanes = lanes_of(found, {case.model for case in own})
    return phase_assignment(found, lanes, own, rule=rule, **how)


def bound(own, rule, found=QUICK):
    return bind(found, lanes_of(found, {case.model for case in own}), own, rule)


def keys_of(group):
    return {lane.rsplit("/", 1)[1] for lane in group.lanes}


def together(made):
    """The names of the groups in waves: the groups of a wave wait for the same groups."""
    waves = {}
    for group in made.groups:
        waves.setdefault(group.after, []).append(group.name)
    return list(waves.values())


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "key"),
    [
        *zip(QWENS, (0, 1, 2, 0, 1), strict=True),
        ("Qwen2.5-72B-Instruct", 0),
        ("qwen2.5-3b", 1),
        ("qwen2.5-110b-instruct", None),
        ("qwen2.5-2b-instruct", None),
        ("qwen-max", None),
        ("Llama-3.3-70B-Instruct", None),
        ("mistral-7b", None),
    ],
)
def test_key_of_a_model_depends_on_its_size(model, key):
    assert key_of_model(model) == key


def test_model_key_binds_each_qwen_to_its_key_and_no_other_model():
    made = groups_of(bound(cases(OPEN, repeats=2), model_key))
    assert list(made) == [
        f"{model} on ideallab/key{key}" for model, key in zip(QWENS, (0, 1, 2, 0, 1), strict=True)
    ]
    assert all(len(group.cases) == 2 for group in made.values())
    assert all(group.at_once is None and not group.after for group in made.values())


def test_rule_never_removes_the_last_lane_of_a_model():
    lanes = lanes_of(TWO_KEYS, ["kimi-k2"])
    assert lanes_on_key(TWO_KEYS, lanes, "kimi-k2", 1) == lanes
    assert [lane.key for lane in lanes] == ["key0"]


def test_group_key_puts_flaw_groups_of_a_model_on_different_keys():
    own = of_phase("phase53", QWENS)
    made = bound(own, group_key(own))
    of = {case.case_id: (case.model, case.params["flaw_group"]) for case in own}
    keys = {of[case_id]: keys_of(group) for group in made.groups for case_id in group.cases}
    for model in QWENS:
        assert sorted(key for group in GROUPS for key in keys[model, group]) == [
            "key0",
            "key1",
            "key2",
        ]
    # Models begin on different keys, so that the larger first group is not always on key0.
    assert [keys[model, "structure"] for model in QWENS[:3]] == [{"key0"}, {"key1"}, {"key2"}]


# -- phases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["phase51", "phase54", "phase55"])
def test_phase_without_concurrency_runs_model_by_model_and_part_by_part(suite):
    own = of_phase(suite)
    made = phase(own)
    waves = together(made)
    assert all(len(wave) == 1 for wave in waves)
    (parameter,) = PARTS[suite]
    parts = 1 if suite == "phase51" else len(PARTS[suite][parameter])
    assert len(waves) == len(OPEN) * parts
    assert [name.split()[1] for (name,) in waves] == [model for model in OPEN for _ in range(parts)]


def test_phase52_starts_all_pairs_fifteen_seconds_apart_by_difficulty():
    made = phase(of_phase("phase52", QWENS))
    (wave,) = together(made)
    assert wave == [f"phase52 {m} {d}" for d in ("very_easy", "medium") for m in QWENS]
    # The timeline of script seed 000: T+0 s to T+135 s.
    assert [group.start_after_s for group in made.groups] == [15.0 * n for n in range(10)]
    scaled = phase(of_phase("phase52", QWENS), scale=0.1)
    assert [group.start_after_s for group in scaled.groups] == pytest.approx(
        [1.5 * n for n in range(10)]
    )


def test_phase53_runs_flaw_groups_of_a_model_together_and_models_one_by_one():
    waves = together(phase(of_phase("phase53")))
    assert waves == [[f"phase53 {model} {group}" for group in GROUPS] for model in OPEN]


def test_process_has_the_workers_of_its_shard_from_the_pool():
    own = of_phase("phase51")
    document = {g.name.split()[1]: g for g in phase(own).groups}
    ultra = {g.name.split()[1]: g for g in phase(own, variant="ultra-document").groups}
    spread = {g.name.split()[1]: g for g in phase(own, rule=any_key).groups}
    for model in AZURE:
        assert (document[model].at_once, len(document[model].lanes)) == (50, 1)
        assert (ultra[model].at_once, len(ultra[model].lanes)) == (150, 3)
    for model in QWENS:
        assert document[model].at_once == ultra[model].at_once == 5
        assert spread[model].at_once == 15
    assert [keys_of(document[model]) for model in QWENS] == [
        {"key0"},
        {"key1"},
        {"key2"},
        {"key0"},
        {"key1"},
    ]


def test_suite_that_is_not_a_phase_is_refused_by_name():
    own = cases(QWENS[:1], "phase99")
    with pytest.raises(ConfigError) as caught:
        phase(own)
    assert "cannot run suite 'phase99' (phase99::qwen2.5-72b-instruct" in str(caught.value)
    assert ", ".join(PART_OF) in str(caught.value)


def test_case_without_the_parameter_of_its_phase_is_refused():
    own = cases(QWENS[:1], "phase54", prompt_type=("optimal",))
    with pytest.raises(
        ConfigError,
        match=r"by the parameter 'tool_success_rate', which .* lacks; its parameters: prompt_type",
    ):
        phase(own)


@given(data=st.data())
def test_any_cases_under_any_rule_are_sound_and_finish(data):
    found = data.draw(st.sampled_from([QUICK, TWO_KEYS]))
    models = data.draw(
        st.lists(st.sampled_from([m for m in OPEN if m in found.models]), min_size=1, unique=True)
    )
    suites = data.draw(st.lists(st.sampled_from(list(PARTS)), min_size=1, unique=True))
    repeats = data.draw(st.integers(1, 2))
    cells = [case for suite in suites for case in of_phase(suite, models, repeats)]
    own = [one for at, one in enumerate(cells) if at == 0 or data.draw(st.integers(0, 3))]
    own = [msgspec.structs.replace(case, index=index) for index, case in enumerate(own)]
    rule = data.draw(st.sampled_from([model_key, group_key(own), any_key]))
    lanes = lanes_of(found, models)
    if data.draw(st.booleans()):
        variant = data.draw(st.sampled_from(VARIANTS))
        made = phase_assignment(found, lanes, own, rule=rule, variant=variant)
        assert {case_id for g in made.groups for case_id in g.cases} == {c.case_id for c in own}
    else:
        made = bind(found, lanes, own, rule)
    assert_sound(made, lanes, own)
    workers = [f"gw{n}" for n in range(data.draw(st.integers(1, 3)))]
    moments = carry_out(found, lanes, own, made, workers)
    if made.groups and made.groups[0].at_once and "phase52" not in suites:
        assert most_models(moments) == 1
