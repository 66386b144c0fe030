"""The behaviour of simulated models, on enough seeded cases to be reliable."""

import random
from collections import Counter

import pytest

from bench_suites import workflow
from bench_suites.workflow import score
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.personas.workflow import obedient, repairing, sloppy
from pytest_ultrapar.simulator.served_pool import persona_by_name
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
    """75 episodes on the same tasks for each persona and flaw of the core set."""
    return {
        (name, flaw): run_arm(PERSONAS[name], flaw=flaw, repeats=15)
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
def test_obeying_and_repairing_are_distinguished_by_first_calls(flawed):
    for flaw in workflow.flaw_set("core"):
        obeying, mending = flawed["obedient", flaw], flawed["repairing", flaw]
        assert mean(obeying, "obeyed") > mean(obeying, "repaired") + 0.4, flaw
        assert mean(mending, "repaired") > mean(mending, "obeyed") + 0.4, flaw


@pytest.mark.slow
def test_obedient_is_affected_by_every_documented_flaw():
    base = weighted(run_arm(obedient))
    for flaw in ("incomplete_description", "insufficient_detail", "parameter_issues"):
        assert weighted(run_arm(obedient, flaw=flaw)) < base, flaw


@pytest.mark.slow
def test_repairing_sometimes_asks_about_a_tool_at_no_cost(sound):
    asked = [episode for episode in sound["repairing"] if score(episode).scores["infos"]]
    assert 0.1 * len(sound["repairing"]) < len(asked) < 0.7 * len(sound["repairing"])
    # At most one question per tool, in the message that calls it: it needs no extra turn.
    for episode in asked:
        assert episode.n_infos <= len({call.tool for call in episode.calls})
        assert episode.n_turns <= len(episode.calls) + episode.n_helped + 1
    assert [episode.n_infos for episode in run_arm(repairing)] == [
        episode.n_infos for episode in sound["repairing"]
    ]
    assert mean(sound["obedient"], "infos") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PERSONAS)
def test_success_grows_with_skill(name):
    arms = [run_arm(PERSONAS[name], skill=skill) for skill in (0.2, 0.6, 1.0)]
    solved = [share(arm, "solved") for arm in arms]
    assert solved[0] + 0.1 < solved[1] < solved[2]
    assert solved[2] > 0.9


@pytest.mark.slow
def test_mistakes_cover_the_kinds_of_errors():
    kinds = Counter()
    for flaw in (None, "missing_step", "sequence_disorder", "insufficient_detail"):
        kinds.update(score(e).kind for e in run_arm(obedient, skill=0.3, flaw=flaw, rate=0.7))
    assert {"tool_selection", "sequence_order", "parameter_config", "dependency", "timeout",
            "max_turns", "other"} <= set(kinds)  # fmt: skip


@pytest.mark.parametrize("name", PERSONAS)
def test_persona_is_a_function_of_its_input(name):
    messages = [ChatMessage("system", "s"), ChatMessage("user", "Task: Read the file.\n")]
    replies = {PERSONAS[name](messages, random.Random(5), 0.5).content for _ in range(3)}
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
            assert PERSONAS[name](messages, random.Random(seed), skill).content
