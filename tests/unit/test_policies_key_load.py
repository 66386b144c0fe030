"""The load of each key: sums computed by hand from the scripts, and with each fix."""

from __future__ import annotations

import msgspec
import pytest

from bench_suites.original_scripts.fix_a import one_after_the_other
from bench_suites.original_scripts.key_rule import bind
from bench_suites.original_scripts.model_key import model_key
from bench_suites.original_scripts.phase_mode import phase_assignment
from bench_suites.original_scripts.process import process_of
from pytest_ultrapar.analysis.plan.load import key_load
from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.coordinator.policies import find_policy
from tests.unit.policy_play import QWENS, cases, lanes_of, pool

SEED_003 = pool("pools/seed003.toml")
PHASE_52 = cases(QWENS, "phase52", 3, difficulty=("very_easy", "medium"))
PHASE_53 = cases(QWENS, "phase53", 3, flaw_group=("structure", "operation", "logic"))
LANES = lanes_of(SEED_003, QWENS)


def loads(own, assignment, found=SEED_003):
    lanes = lanes_of(found, {case.model for case in own})
    return key_load(found, lanes, own, assignment, process_of=lambda case: process_of(case).name)


def most(own, assignment):
    return [load.most_at_once for load in loads(own, assignment)]


def shipped(word, own=PHASE_52):
    return find_policy(word, "ultra")(SEED_003, ["gw0"], LANES, own)


def in_phase(own, found):
    lanes = lanes_of(found, {case.model for case in own})
    return loads(own, phase_assignment(found, lanes, own, rule=model_key), found)


def sums(found):
    """The processes in parallel and requests per second of each key, as the scripts count."""
    return [(load.most_at_once, load.qps) for load in found]


@pytest.mark.parametrize(
    ("name", "sum_52", "sum_53", "limit"),
    [
        # Script seed 000: 1 worker each.
        ("pools/seed000.toml", [(4, 4), (4, 4), (2, 2)], (3, 3), 5),
        # Script seed 002, where a process sends 2 QPS, on pools with 2 workers or more.
        ("pools/seed001.toml", [(4, 8), (4, 8), (2, 4)], (3, 6), 10),
        ("pools/seed003.toml", [(4, 8), (4, 8), (2, 4)], (3, 6), 10),
        ("pool.toml", [(4, 8), (4, 8), (2, 4)], (3, 6), 18),
    ],
)
def test_pools_of_the_scripts_have_the_documented_sums(name, sum_52, sum_53, limit):
    found = pool(name)
    assert sums(in_phase(PHASE_52, found)) == sum_52
    assert sums(in_phase(PHASE_53, found)) == [sum_53] * 3
    assert {load.qps_limit for load in in_phase(PHASE_52, found)} == {limit}


def test_sum_is_the_largest_of_processes_that_run_together():
    closed = cases(("kimi-k2",), "phase53", 1, flaw_group=("structure", "operation", "logic"))
    closed = [msgspec.structs.replace(case, case_id=f"closed {case.index}") for case in closed]
    own = [*PHASE_53, *closed]
    lanes = lanes_of(SEED_003, {case.model for case in own})
    bound = bind(SEED_003, lanes, PHASE_53, model_key)
    # Two Qwens with 3 groups of 2 workers each are on key0, with a model of one worker.
    assert sums(loads(own, bound)) == [(9, 15), (6, 12), (3, 6)]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("even", [10, 10, 10]),
        ("batch:3", [2, 2, 2]),
        ("exclusive", [2, 2, 2]),
        ("batch:5", [4, 4, 2]),
    ],
)
def test_fixes_lower_the_load_of_phase_52(word, expected):
    # Two is the minimum here: the difficulties of one model.
    assert most(PHASE_52, shipped(word)) == expected


def test_fix_a_runs_all_models_at_a_difficulty_before_the_next():
    made = one_after_the_other(SEED_003.models, [*PHASE_52, *PHASE_53])
    names = [group.name for group in made.groups]
    assert names[:10] == [f"phase52 {m} {d}" for d in ("very_easy", "medium") for m in QWENS]
    assert names[10:13] == [f"phase53 {QWENS[0]} {g}" for g in ("structure", "operation", "logic")]
    assert [group.after for group in made.groups] == [(), *((name,) for name in names[:-1])]


def test_phases_without_concurrency_run_one_process_at_a_time():
    own = cases(QWENS, "phase54", 2, tool_success_rate=(0.9, 0.7))
    assert most(own, phase_assignment(SEED_003, LANES, own, rule=model_key)) == [1, 1, 1]
    assert [len(load.processes) for load in loads(own, bind(SEED_003, LANES, own, model_key))] == [
        4,
        4,
        2,
    ]


def test_load_follows_the_order_of_groups():
    # Two chains of unequal length: the end of the longer chain overlaps the other chain, unless
    # the other chain waits for it.
    own = cases(QWENS[:1], "phase52", difficulty=("a", "b", "c"))
    a, b, c = ((case.case_id,) for case in own)
    chain = (Group("a", a), Group("b", b, after=("a",)), Group("c", c))
    assert most(own, Assignment(groups=chain)) == [2, 2, 2]
    after_all = (*chain[:2], Group("c", c, after=("b",)))
    assert most(own, Assignment(groups=after_all)) == [1, 1, 1]
    words = (Group("a", a, exclusive="w"), Group("b", b, exclusive="w"), Group("c", c))
    assert most(own, Assignment(groups=words)) == [2, 2, 2]
