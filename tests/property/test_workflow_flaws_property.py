"""A flaw changes only the plan, and only the actions of a model that follows the plan."""

import itertools

from hypothesis import assume, given
from hypothesis import strategies as st

from bench_suites.workflow import FLAWS, SEVERITIES, TASKS, FlawError, flaw, load_tools
from bench_suites.workflow.adherence import common_subsequence
from bench_suites.workflow.prompts import build_messages
from tests.examples import examples

TASK_LIST = list(TASKS.by_id.values())
"""All tasks; tests skip those that a flaw cannot change."""
SEEDS = st.integers(0, 2**63 - 1)


def flawed_or_none(task, chosen, seed):
    try:
        return chosen.apply(task.plan, seed=seed)
    except FlawError:
        return None


def prompt(task, plan):
    return build_messages(task, prompt_type="optimal", difficulty="easy", plan=plan)[1]["content"]


@given(st.sampled_from(TASK_LIST), st.sampled_from(list(FLAWS)), st.sampled_from(SEVERITIES), SEEDS)
def test_flaw_is_pure_and_changes_only_the_plan(task, name, severity, seed):
    sound = task.plan
    flawed = flawed_or_none(task, flaw(name, severity=severity), seed)
    assume(flawed is not None)
    assert flaw(name, severity=severity).apply(sound, seed=seed) == flawed
    assert sound == task.plan
    assert flawed.task_id == sound.task_id
    assert flawed.steps
    assert set(flawed.tools) <= set(load_tools())
    before, after = prompt(task, sound), prompt(task, flawed)
    assert before != after
    assert before.split("Plan (")[0] == after.split("Plan (")[0]


@given(st.sampled_from(TASK_LIST), SEEDS)
def test_flaws_differ_from_each_other(task, seed):
    plans = [flawed_or_none(task, flaw(name), seed) for name in FLAWS]
    shown = [plan.rendered() for plan in plans if plan is not None]
    assert len(set(shown)) == len(shown) >= len(FLAWS) - 2


@examples(40)
@given(st.sampled_from(list(FLAWS)), SEEDS)
def test_more_severe_flaw_changes_more_steps(name, seed):
    some = TASK_LIST[::20]
    found = {
        severity: [flawed_or_none(task, flaw(name, severity=severity), seed) for task in some]
        for severity in SEVERITIES
    }
    usable = [all(each) for each in zip(*found.values(), strict=True)]
    tasks = list(itertools.compress(some, usable))
    plans = {severity: list(itertools.compress(found[severity], usable)) for severity in found}

    def kept(severity):
        """The share of the plans' steps that are unchanged, in their order."""
        total = 0.0
        for task, plan in zip(tasks, plans[severity], strict=True):
            longest = max(len(plan.steps), len(task.plan.steps))
            total += common_subsequence(plan.steps, task.plan.steps) / longest
        return total

    light, medium, severe = (kept(severity) for severity in SEVERITIES)
    assert light >= medium >= severe
    assert light > severe
