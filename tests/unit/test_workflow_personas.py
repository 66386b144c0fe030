"""The shapes that simulated models must show, on enough seeded cases to be sure."""

import random
from collections import Counter

import pytest

from bench_suites import workflow
from bench_suites.workflow import score
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.personas.workflow import obedient, repairing, sloppy
from pytest_ultrapar.simulator.served import persona_by_name
from tests.unit.workflow_models import run_arm

BROKEN_PLAN = "Inputs:\n- a: [1, \n\n1. x\n   Purpose: \n   Parameters: a = \n   Needs: "
PERSONAS = {"obedient": obedient, "repairing": repairing, "sloppy": sloppy}


def share(episodes, outcome):
    return sum(score(e).outcome == outcome for e in episodes) / len(episodes)


def weighted(episodes):
    return share(episodes, "solved") + 0.5 * share(episodes, "partial")


def mean(episodes, name):
    return sum(score(e).scores[name] for e in episodes) / len(episodes)


@pytest.fixture(scope="module")
def flawed():
    """By persona and flaw of the core set, 150 episodes on the same tasks."""
    return {
        (name, flaw): run_arm(PERSONAS[name], flaw=flaw)
        for name in ("obedient", "repairing")
        for flaw in workflow.flaw_set("core")
    }


@pytest.fixture(scope="module")
def sound():
    return {name: run_arm(persona) for name, persona in PERSONAS.items()}


@pytest.mark.parametrize("name", PERSONAS)
def test_persona_is_found_by_its_name(name):
    assert persona_by_name(name) is PERSONAS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", PERSONAS)
def test_competent_persona_solves_sound_plans_in_five_to_seven_turns(sound, name):
    assert share(sound[name], "solved") > 0.85
    assert 5 <= mean(sound[name], "turns") <= 7


@pytest.mark.slow
def test_obedient_does_worst_on_missing_steps_and_misused_tools(flawed):
    by_flaw = {flaw: weighted(flawed["obedient", flaw]) for flaw in workflow.flaw_set("core")}
    assert set(sorted(by_flaw, key=by_flaw.__getitem__)[:2]) == {"missing_step", "tool_misuse"}
    assert by_flaw["missing_step"] < 0.1
    assert by_flaw["tool_misuse"] < 0.1
    # What comes too early is refused, so a wrong order is next.
    assert sorted(by_flaw, key=by_flaw.__getitem__)[2] == "sequence_disorder"


@pytest.mark.slow
def test_repairing_hardly_suffers_from_any_flaw(flawed, sound):
    base = weighted(sound["repairing"])
    for flaw in workflow.flaw_set("core"):
        assert weighted(flawed["repairing", flaw]) > base - 0.1, flaw


@pytest.mark.slow
def test_obeying_and_repairing_are_told_apart_by_first_calls(flawed):
    for flaw in workflow.flaw_set("core"):
        obeying, mending = flawed["obedient", flaw], flawed["repairing", flaw]
        assert mean(obeying, "obeyed") > mean(obeying, "repaired") + 0.4, flaw
        assert mean(mending, "repaired") > mean(mending, "obeyed") + 0.4, flaw


@pytest.mark.slow
def test_obeying_and_repairing_are_told_apart_by_both_adherences(flawed):
    for flaw in ("missing_step", "tool_misuse", "semantic_drift"):
        obeying, mending = flawed["obedient", flaw], flawed["repairing", flaw]
        assert mean(mending, "workflow_sound") > mean(obeying, "workflow_sound") + 0.2, flaw
        obeys = mean(obeying, "workflow") - mean(obeying, "workflow_sound")
        mends = mean(mending, "workflow") - mean(mending, "workflow_sound")
        assert obeys > 0.1 > mends, flaw


@pytest.mark.slow
def test_obedient_reaches_every_flaw_of_the_documents_too():
    base = weighted(run_arm(obedient))
    for flaw in ("incomplete_description", "insufficient_detail", "parameter_issues"):
        assert weighted(run_arm(obedient, flaw=flaw)) < base, flaw


@pytest.mark.slow
def test_success_falls_and_partial_rises_as_tools_fail_more():
    for persona in (obedient, repairing):
        arms = [run_arm(persona, rate=rate) for rate in (0.9, 0.7, 0.5)]
        solved = [share(arm, "solved") for arm in arms]
        partial = [share(arm, "partial") for arm in arms]
        assert solved[0] > solved[1] + 0.02 > solved[2] + 0.1
        assert partial[0] <= partial[1] < partial[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["obedient", "repairing"])
def test_plan_lifts_full_success_over_no_plan(sound, name):
    skill = 0.85
    optimal = run_arm(PERSONAS[name], skill=skill)
    baseline = run_arm(PERSONAS[name], skill=skill, prompt_type="baseline")
    assert share(optimal, "solved") >= share(baseline, "solved")
    assert mean(baseline, "searches") > 2
    assert mean(optimal, "turns") < mean(baseline, "turns")


def test_repairing_asks_about_a_tool_now_and_then_at_no_cost(sound):
    asked = [episode for episode in sound["repairing"] if score(episode).scores["infos"]]
    assert 0.1 * len(sound["repairing"]) < len(asked) < 0.7 * len(sound["repairing"])
    # One question per tool at most, in the message that calls it: it takes no turn of its own.
    for episode in asked:
        assert episode.n_infos <= len({call.tool for call in episode.calls})
        assert episode.n_turns <= len(episode.calls) + episode.n_helped + 1
    assert [episode.n_infos for episode in run_arm(repairing)] == [
        episode.n_infos for episode in sound["repairing"]
    ]
    assert mean(sound["obedient"], "infos") == 0


@pytest.mark.slow
def test_thinking_aloud_is_answered_and_costs_turns():
    baseline = run_arm(obedient, skill=0.6, prompt_type="baseline")
    cot = run_arm(obedient, skill=0.6, prompt_type="cot")
    assert share(cot, "solved") > 0.4
    assert mean(cot, "assisted_turns") > mean(baseline, "assisted_turns")


def test_sloppy_loses_nothing_by_its_open_tags(sound):
    assert mean(sound["sloppy"], "unclosed_tags") > 2
    assert mean(sound["obedient"], "unclosed_tags") < 0.5
    # 150 paired cases: 0.06 is two standard errors of the difference of shares near 0.95.
    assert abs(share(sound["sloppy"], "solved") - share(sound["obedient"], "solved")) < 0.06
    assert abs(mean(sound["sloppy"], "final") - mean(sound["obedient"], "final")) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("name", PERSONAS)
def test_success_grows_with_skill(name):
    arms = [run_arm(PERSONAS[name], skill=skill) for skill in (0.2, 0.6, 1.0)]
    solved = [share(arm, "solved") for arm in arms]
    assert solved[0] + 0.1 < solved[1] < solved[2]
    assert solved[2] > 0.9


@pytest.mark.slow
def test_slips_cover_the_kinds_of_errors():
    kinds = Counter()
    for flaw in (None, "missing_step", "sequence_disorder", "insufficient_detail"):
        kinds.update(score(e).kind for e in run_arm(obedient, skill=0.3, flaw=flaw, rate=0.7))
    assert {"tool_selection", "sequence_order", "parameter_config", "dependency", "timeout",
            "max_turns", "other"} <= set(kinds)  # fmt: skip


@pytest.mark.parametrize("name", PERSONAS)
def test_persona_is_a_function_of_what_it_hears(name):
    messages = [ChatMessage("system", "s"), ChatMessage("user", "Task: Read the file.\n")]
    replies = {PERSONAS[name].reply(messages, random.Random(5), 0.5).content for _ in range(3)}
    assert len(replies) == 1


@pytest.mark.parametrize("name", PERSONAS)
@pytest.mark.parametrize("skill", [0.0, 0.5, 1.0])
def test_persona_answers_any_conversation(name, skill):
    conversations = [
        [ChatMessage("user", "")],
        [ChatMessage("system", "only this")],
        [ChatMessage("assistant", "hm"), ChatMessage("tool", "Result of x: success\n{}")],
        [ChatMessage("user", "Task: Read the file.\n"), ChatMessage("user", "Result of : success")],
        [ChatMessage("user", BROKEN_PLAN)],
    ]
    for messages in conversations:
        for seed in range(20):
            assert PERSONAS[name].reply(messages, random.Random(seed), skill).content
