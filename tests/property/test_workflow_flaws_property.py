"""Every flaw changes what the model sees, for every task and severity, and nothing but the plan."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_suites.workflow import FLAWS, SEVERITIES, TASKS, flaw, load_tools
from bench_suites.workflow.adherence import common_subsequence
from bench_suites.workflow.prompts import build_messages

TASK_LIST = list(TASKS.by_id.values())
SEEDS = st.integers(0, 2**63 - 1)


def prompt(task, plan):
    return build_messages(task, prompt_type="optimal", difficulty="easy", plan=plan)[1]["content"]


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", FLAWS)
def test_flaw_changes_the_prompt_of_every_task(name, severity):
    chosen = flaw(name, severity=severity)
    unchanged = [
        task.task_id
        for task in TASK_LIST
        if prompt(task, chosen.apply(task.plan, seed=1)) == prompt(task, task.plan)
    ]
    assert unchanged == []


@given(st.sampled_from(TASK_LIST), st.sampled_from(list(FLAWS)), st.sampled_from(SEVERITIES), SEEDS)
def test_flaw_is_pure_and_changes_the_plan_alone(task, name, severity, seed):
    sound = task.plan
    spoilt = flaw(name, severity=severity).apply(sound, seed=seed)
    assert flaw(name, severity=severity).apply(sound, seed=seed) == spoilt
    assert sound == task.plan
    assert spoilt.task_id == sound.task_id
    assert spoilt.steps
    assert set(spoilt.tools) <= set(load_tools())
    before, after = prompt(task, sound), prompt(task, spoilt)
    assert before != after
    assert before.split("Plan (")[0] == after.split("Plan (")[0]


@given(st.sampled_from(TASK_LIST), SEEDS)
def test_flaws_differ_from_each_other(task, seed):
    shown = [flaw(name).apply(task.plan, seed=seed).rendered() for name in FLAWS]
    assert len(set(shown)) == len(FLAWS)


@settings(max_examples=40)
@given(st.sampled_from(list(FLAWS)), SEEDS)
def test_flaw_touches_more_the_more_severe_it_is(name, seed):
    def kept(severity):
        """Share of the plans' steps that stand as they were, in their order."""
        total = 0.0
        for task in TASK_LIST[::20]:
            plan = flaw(name, severity=severity).apply(task.plan, seed=seed)
            longest = max(len(plan.steps), len(task.plan.steps))
            total += common_subsequence(plan.steps, task.plan.steps) / longest
        return total

    light, medium, severe = (kept(severity) for severity in SEVERITIES)
    assert light >= medium >= severe
    assert light > severe
