"""The shipped policies: their assignments, and that dispatch and broker can finish these."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.coordinator.policies import POLICIES, batch_size, find_policy
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.session.settings import is_called, read_offered, settle_policy
from tests.unit.policy_play import (
    AZURE,
    QWENS,
    assert_sound,
    carry_out,
    cases,
    groups_of,
    lanes_of,
    most_models,
    most_models_on_a_key,
    pool,
    pool_of_two_keys,
)

POOLS = {name: pool(name) for name in ("pool.toml", "pools/seed003.toml", "pools/vllm.toml")}
TWO_KEYS = "seed 000, two keys"
POOLS[TWO_KEYS] = pool_of_two_keys()
WORDS = [name.replace("N", "3") for name in POLICIES]


def assignment(word, models, found=POOLS["pool.toml"], own=None, workers=("gw0", "gw1")):
    own = own or cases(models, difficulty=("very_easy", "medium"))
    lanes = lanes_of(found, models)
    return find_policy(word, "ultra")(found, workers, lanes, own)


def keys_of(group):
    return {lane.rsplit("/", 1)[1] for lane in group.lanes}


# -- names ---------------------------------------------------------------------------------------


def test_policy_defaults_to_even_and_in_mode_phase_to_the_first_offered_policy():
    assert settle_policy(None, mode="ultra", offered=["a", "b"]) == "even"
    assert settle_policy(None, mode="phase", offered=["a", "b"]) == "a"


@pytest.mark.parametrize("word", WORDS)
def test_shipped_policy_is_known_and_found(word):
    assert settle_policy(word, mode="ultra", offered=[*POLICIES]) == word
    assert isinstance(assignment(word, QWENS), Assignment)


def test_offered_policy_is_known_with_and_without_an_argument():
    offered = read_offered([["mine", "cut:N"], ("other",)])
    for word in ("mine", "cut:7", "other"):
        assert settle_policy(word, mode="ultra", offered=offered) == word


@pytest.mark.parametrize("word", ["mystery", "Even", "", "batch", "even:2", "serial ", "cut"])
def test_unknown_policy_is_refused_with_the_known_names(word):
    with pytest.raises(ConfigError) as caught:
        settle_policy(word, mode="ultra", offered=[*POLICIES, "cut:N"])
    for name in (*POLICIES, "cut:N", repr(word)):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "word", ["batch:0", "batch:x", "batch:", "batch:-1", "batch:3.0", "batch:٣"]
)
def test_batch_needs_a_number_of_models(word):
    with pytest.raises(ConfigError, match=r"N in batch:N must be a number of models, 1 to"):
        find_policy(word, "ultra")


@given(st.integers(1, 999_999))
def test_batch_accepts_every_number_of_models(number):
    assert batch_size(f"batch:{number}") == number
    assert is_called(f"batch:{number}", "batch:N")


def test_mode_phase_accepts_only_offered_policies():
    with pytest.raises(ConfigError, match=r"unknown in mode phase; allowed: mine$"):
        settle_policy("exclusive", mode="phase", offered=["mine"])
    with pytest.raises(ConfigError, match="no conftest or plugin in this project defines phases"):
        settle_policy(None, mode="phase", offered=[])


@pytest.mark.parametrize("answer", ["mine", 7, ["two words"], [""], [None]])
def test_offer_that_is_not_a_sequence_of_words_is_refused(answer):
    with pytest.raises(ConfigError, match="pytest_ultrapar_policies"):
        read_offered([answer])


@pytest.mark.parametrize(("word", "mode"), [("mine", "ultra"), ("even", "phase")])
def test_policy_without_an_assignment_is_an_error(word, mode):
    with pytest.raises(ConfigError, match="no pytest_ultrapar_assign returned an assignment for"):
        find_policy(word, mode)


# -- assignments ----------------------------------------------------------------------------------


def test_serial_runs_models_one_by_one_in_the_pools_order():
    made = assignment("serial", tuple(reversed(QWENS)))
    assert [group.name for group in made.groups] == list(QWENS)
    assert [group.after for group in made.groups] == [(), *((name,) for name in QWENS[:-1])]
    assert all(keys_of(group) == {"key0", "key1", "key2"} for group in made.groups)


def test_batch_of_three_is_fix_b_of_seed_002():
    made = groups_of(assignment("batch:3", QWENS))
    big, middle, small = QWENS[:3]
    assert [keys_of(made[name]) for name in QWENS[:3]] == [{"key0"}, {"key1"}, {"key2"}]
    assert all(not made[name].after for name in (big, middle, small))
    assert all(set(made[name].after) == {big, middle, small} for name in QWENS[3:])
    # Two models on three keys: no key is idle.
    assert [keys_of(made[name]) for name in QWENS[3:]] == [{"key0", "key2"}, {"key1"}]


def test_batch_shares_keys_if_there_are_fewer_keys_than_models():
    made = groups_of(assignment("batch:3", QWENS, POOLS[TWO_KEYS]))
    assert [keys_of(made[name]) for name in QWENS[:3]] == [{"key0"}, {"key1"}, {"key0"}]


def test_batch_of_all_models_has_no_order():
    made = assignment("batch:9", (*AZURE, *QWENS))
    assert all(group.after == () for group in made.groups)


def test_exclusive_deals_each_models_cases_to_all_keys_and_runs_one_group_per_key():
    own = cases(QWENS, difficulty=("very_easy", "medium"), repeats=3)
    made = assignment("exclusive", QWENS, own=own)
    assert len(made.groups) == 5 * 3
    for group in made.groups:
        assert len(group.cases) == 2
        assert {f"ideallab/{key}" for key in keys_of(group)} == {group.exclusive}
        assert not group.after
    assert {case_id for group in made.groups for case_id in group.cases} == {c.case_id for c in own}


def test_exclusive_deals_fewer_cases_to_a_key_that_another_model_needs():
    found = POOLS[TWO_KEYS]
    models = ("qwen2.5-72b-instruct", "kimi-k2")
    own = [*cases(models[1:], "phase51", 40), *cases(models[:1], repeats=10)]
    made = assignment("exclusive", models, found, own)
    sizes = {group.name: len(group.cases) for group in made.groups}
    # The model with key0 only needs 40 s there, so the other model's ten cases go to key1.
    assert sizes == {
        "kimi-k2 on ideallab/key0": 40,
        "qwen2.5-72b-instruct on ideallab/key1": 10,
    }


@given(data=st.data(), word=st.sampled_from(WORDS), name=st.sampled_from(list(POOLS)))
def test_any_policy_on_any_cases_is_sound_and_finishes(data, word, name):
    found = POOLS[name]
    models = data.draw(st.lists(st.sampled_from(found.models), min_size=1, unique=True, max_size=6))
    own = data.draw(st.permutations(cases(models, repeats=data.draw(st.integers(1, 4)))))
    own = [one for at, one in enumerate(own) if at == 0 or data.draw(st.booleans())]
    workers = [f"gw{n}" for n in range(data.draw(st.integers(1, 4)))]
    lanes = lanes_of(found, models)
    made = find_policy(word, "ultra")(found, workers, lanes, own)
    assert_sound(made, lanes, own)
    moments = carry_out(found, lanes, own, made, workers)
    if word == "serial":
        assert most_models(moments) == 1
    if word == "batch:3":
        assert most_models(moments) <= 3
    if word == "exclusive":
        assert most_models_on_a_key(moments) == 1
