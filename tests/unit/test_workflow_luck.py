"""Luck is common: equal models get equal grades, and a lower rate only takes."""

from __future__ import annotations

import pytest

from bench_suites import workflow
from bench_suites.workflow import TASK_TYPES, TASKS, luck, score
from bench_suites.workflow.agent import MAX_TURNS
from bench_suites.workflow.ceiling import is_reachable
from pytest_ultrapar.simulator.personas.workflow import obedient, repairing, sloppy
from tests.unit import workflow_instruments as instruments
from tests.unit.workflow_instruments import play
from tests.unit.workflow_models import run_arm

RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RANK = {"unsolved": 0, "partial": 1, "solved": 2}
DRAWN = [(TASKS.draw(kind, repeat, 0), repeat) for kind in TASK_TYPES for repeat in range(20)]


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


@pytest.mark.parametrize("persona", [obedient, repairing, sloppy])
def test_lower_rate_only_takes_from_models_without_slips(persona):
    arms = [run_arm(persona, skill=1.0, rate=rate, repeats=20) for rate in RATES[:-1]]
    for case in zip(*arms, strict=True):
        ranks = [RANK[score(episode).outcome] for episode in case]
        assert ranks == sorted(ranks)


def test_flawless_model_solves_what_is_reachable_and_nothing_else():
    for task, repeat in DRAWN:
        seed = luck(0, task.task_id, repeat)
        verdict = score(play(instruments.flawless(task, task.plan), task, rate=0.5, seed=seed))
        assert verdict.scores["reachable"] == (verdict.outcome == "solved")
        assert verdict.kind == (None if verdict.outcome == "solved" else "luck")


def test_reachable_needs_a_turn_for_each_step():
    task = next(one for one in TASKS.by_id.values() if len(one.required) == 6)
    for turns in range(1, MAX_TURNS):
        found = is_reachable(task, tool_success_rate=1.0, seed=1, max_turns=turns)
        assert found is (turns >= 6)


def test_luck_of_a_case_is_the_same_in_every_phase():
    task = TASKS.draw("data_pipeline", 3, 7)
    plain = workflow.flaw("tool_misuse", severity="light")
    drawn = workflow.draw_flawed(plain, "data_pipeline", 3, 7)
    assert drawn.task == task
    seed = luck(7, task.task_id, 3)
    sound = play(instruments.flawless(task, task.plan), task, rate=0.6, seed=seed)
    flawed = play(instruments.flawless(task, drawn.plan), task, drawn.plan, rate=0.6, seed=seed)
    assert sound.calls == flawed.calls
