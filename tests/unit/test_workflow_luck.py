"""Random failures are shared: equal models get equal grades, lower rates no higher grades."""

from __future__ import annotations

import asyncio
import inspect
import itertools

import pytest

from bench_suites import conftest as most_phases
from bench_suites.phase53 import test_flawed_workflow as phase53
from bench_suites.workflow import TASK_TYPES, TASKS, luck, score
from bench_suites.workflow.agent import MAX_TURNS
from bench_suites.workflow.ceiling import is_reachable
from bench_suites.workflow.conversation import Conversation
from bench_suites.workflow.reply_parser import Action, ParsedReply
from bench_suites.workflow.steps import work
from pytest_ultrapar.session.prefetch import ATTRIBUTE, CaseInfo
from pytest_ultrapar.simulator.personas.workflow import repairing
from tests.unit import workflow_instruments as instruments
from tests.unit.workflow_instruments import play
from tests.unit.workflow_models import Acting

RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RANK = {"unsolved": 0, "partial": 1, "solved": 2}
DRAWN = [(TASKS.draw(kind, repeat, 0), repeat) for kind in TASK_TYPES for repeat in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("instrument", [instruments.flawless, instruments.reverser])
def test_lower_rate_only_turns_successes_into_failures(instrument):
    for task, repeat in DRAWN:
        seed = luck(0, task.task_id, repeat)
        verdicts = [
            score(play(instrument(task, task.plan), task, rate=rate, seed=seed)) for rate in RATES
        ]
        ranks = [RANK[verdict.outcome] for verdict in verdicts]
        assert ranks == sorted(ranks)
        reachable = [verdict.scores["reachable"] for verdict in verdicts]
        assert reachable == sorted(reachable)
        assert reachable[-1] == 1


@pytest.mark.parametrize("instrument", [instruments.flawless, instruments.switching])
def test_no_model_solves_an_unreachable_case(instrument):
    n_missed = 0
    for task, repeat in DRAWN:
        seed = luck(0, task.task_id, repeat)
        verdict = score(play(instrument(task, task.plan), task, rate=0.5, seed=seed))
        assert verdict.scores["reachable"] >= (verdict.outcome == "solved")
        assert (verdict.kind == "luck") == (not verdict.scores["reachable"])
        n_missed += verdict.scores["reachable"] > (verdict.outcome == "solved")
    # Five failures in a row end an episode, so no fixed order is always the best.
    assert n_missed <= 0.2 * len(DRAWN)


@pytest.mark.slow
def test_case_is_reachable_if_some_order_of_the_calls_solves_it():
    """Try all orders with the code of the episode, on tasks of three steps."""
    found = set()
    for task in [one for one in TASKS.by_id.values() if len(one.required) == 3][:8]:
        options = {"tool_success_rate": 0.45, "seed": luck(1, task.task_id, 0)}
        orders = itertools.product(range(3), repeat=6)
        by_trying = any(solves(task, order, **options) for order in orders)
        assert is_reachable(task, **options, max_turns=6) is by_trying
        found.add(by_trying)
    assert found == {True, False}


def solves(task, order, **options):
    conversation = Conversation(task, **options)
    for turn in order:
        step = task.plan.steps[turn]
        action = Action("call", step.tool, dict(step.parameters))
        _, stop = conversation.take(ParsedReply("", (action,)), last=False)
        if stop is not None:
            break
    return len(work(task.plan, conversation.calls).done) == len(task.required)


def test_reachable_needs_a_turn_for_each_step():
    task = next(one for one in TASKS.by_id.values() if len(one.required) == 6)
    for turns in range(1, MAX_TURNS):
        found = is_reachable(task, tool_success_rate=1.0, seed=1, max_turns=turns)
        assert found is (turns >= 6)


def asked_by(fixture, **parameters):
    """Run the prefetched function of a suite with a model that carries out the task."""
    case = CaseInfo("c", 0, 7, 3, "m", {}, ())
    llm = Acting(repairing, skill=1.0)
    function = vars(inspect.unwrap(fixture))[ATTRIBUTE].function
    return asyncio.run(function(llm, case, difficulty="easy", tool_success_rate=0.6, **parameters))


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_random_failures_of_a_case_are_the_same_with_and_without_a_flaw(task_type):
    """Phase 5.3 draws with its own code: task, tries and results agree with the other phases."""
    sound = asked_by(most_phases.episode, task_type=task_type, prompt_type="optimal")
    flawed = asked_by(phase53.episode, task_type=task_type, flaw="tool_misuse", severity="light")
    assert flawed.task_id == sound.task_id
    assert flawed.given != sound.given
    assert lucks(flawed) == lucks(sound)


def lucks(episode):
    """Whether each try succeeded, in order, for each tool of the task."""
    return {
        tool: [call.ok for call in episode.calls if call.tool == tool] for tool in episode.sound
    }
