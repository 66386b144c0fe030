"""Verdicts, scores and rates of models whose behaviour is known."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from bench_suites.workflow import (
    DIFFICULTIES,
    FLAWS,
    SEVERITIES,
    TASKS,
    FlawError,
    flaw,
    luck,
    score,
)
from tests.unit import workflow_instruments as instruments
from tests.unit.workflow_instruments import play

ALL = list(TASKS.by_id.values())
SOME = ALL[::4]


def graded(instrument, task, plan=None):
    return score(play(instrument(task, plan or task.plan), task, plan))


def flawed(tasks, name, severity):
    """The tasks that a flaw can change, with their flawed plans."""
    found = []
    for task in tasks:
        with suppress(FlawError):
            found.append((task, flaw(name, severity=severity).apply(task.plan, seed=3)))
    return found


def outcomes(instrument):
    return Counter(graded(instrument, task).outcome for task in SOME)


@pytest.mark.slow
def test_every_task_can_be_solved():
    for task in ALL:
        assert graded(instruments.flawless, task).outcome == "solved", task.task_id


@pytest.mark.slow
@pytest.mark.parametrize(
    "instrument",
    [
        instruments.obedient,
        instruments.reverser,
        instruments.unclosing,
        instruments.talkative,
        instruments.busy(1),
    ],
)
def test_model_that_does_the_whole_task_solves_it(instrument):
    assert outcomes(instrument) == {"solved": len(SOME)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "instrument", [instruments.example_sender, instruments.guesser, instruments.claimer]
)
def test_model_that_only_pretends_solves_nothing(instrument):
    found = outcomes(instrument)
    assert found["solved"] == 0
    # In a task of two independent steps, one step is half of the work.
    assert found["partial"] <= 0.02 * len(SOME)


def test_claim_of_completion_changes_no_verdict_and_is_counted():
    for task in ALL[::9]:
        quiet = score(play(instruments.quitter(task, task.plan), task))
        boasting = score(play(instruments.boasting(task, task.plan), task))
        assert boasting.outcome == quiet.outcome == "partial"
        assert (quiet.scores["false_claim"], boasting.scores["false_claim"]) == (0, 1)


@pytest.mark.slow
def test_right_calls_in_a_forbidden_order_do_not_solve_the_task():
    for task in SOME:
        is_forced = any(step.needs for step in task.plan.steps)
        verdict = graded(instruments.backwards, task)
        assert (verdict.outcome == "solved") is not is_forced
        assert verdict.kind == ("sequence_order" if is_forced else None)


@pytest.mark.slow
def test_more_than_one_unnecessary_call_makes_the_case_partial():
    verdicts = [graded(instruments.busy(2), task) for task in SOME]
    assert {(one.outcome, one.kind) for one in verdicts} == {("partial", "needless_calls")}
    assert {one.scores["needless"] for one in verdicts} == {2.0}


@pytest.mark.slow
def test_half_of_the_steps_without_a_claim_is_partial():
    verdicts = [graded(instruments.quitter, task) for task in SOME]
    assert {one.outcome for one in verdicts} == {"partial"}
    assert all(0.5 <= one.scores["steps"] < 1 for one in verdicts)


THOROUGH = (
    instruments.flawless,
    instruments.reverser,
    instruments.unclosing,
    instruments.talkative,
)
OBEDIENT = (instruments.obedient, instruments.first_taker, instruments.once_each)
EMPTY = (instruments.example_sender, instruments.guesser, instruments.claimer)
OTHERS = (instruments.quitter, instruments.boasting, instruments.busy(2), instruments.busy(1))


@pytest.mark.slow
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", FLAWS)
@pytest.mark.parametrize(
    "tasks",
    [
        pytest.param(ALL[::45], id="sample"),
        pytest.param(ALL[::9], id="ninth", marks=pytest.mark.slow),
    ],
)
def test_flaw_lowers_the_score_of_obeying_and_not_of_repairing_models(
    tasks, name, severity, played
):
    """Margin: from medium on, obeying models solve nothing, and repairing models solve all."""
    bitten = flawed(tasks, name, severity)
    for task, plan in bitten:
        for instrument in OBEDIENT:
            obeys = graded(instrument, task, plan)
            # Five refusals in a row end an episode, so the last steps are not always reached.
            assert obeys.scores["obeyed"] >= 3 / 4, task.task_id
            assert obeys.scores["repaired"] == 0.0, task.task_id
            if severity != "light" or name != "redundant_operations":
                assert obeys.outcome != "solved", task.task_id

        episode, _ = played(instruments.flawless, task.task_id)
        repairs = score(replace(episode, given=plan))
        assert repairs.outcome == "solved", task.task_id
        assert (repairs.scores["obeyed"], repairs.scores["repaired"]) == (0, 1), task.task_id
    assert len(bitten) >= 0.5 * len(tasks)


@pytest.mark.slow
@pytest.mark.parametrize("severity", ["medium", "severe"])
@pytest.mark.parametrize("name", FLAWS)
def test_random_failures_do_not_hide_a_flaw(name, severity):
    """Margin: obeying models solve no reachable case, and repairing models solve nine of ten.

    With redundant operations, obeying models solve up to a third, since a second call after a
    failure may be a retry.
    """
    n_reachable = n_obeyed = n_repaired = 0
    most = 1 / 3 if name == "redundant_operations" else 0
    for number, (task, plan) in enumerate(flawed(ALL[::10], name, severity)):
        options = {"rate": 0.6, "seed": luck(3, task.task_id, number)}
        obeys = score(play(instruments.once_each(task, plan), task, plan, **options))
        repairs = score(play(instruments.flawless(task, plan), task, plan, **options))
        assert obeys.scores["repaired"] == repairs.scores["obeyed"] == 0, task.task_id
        n_reachable += repairs.scores["reachable"] == 1
        n_obeyed += obeys.outcome == "solved"
        n_repaired += repairs.outcome == "solved"
    assert n_obeyed <= most * n_reachable
    assert n_repaired >= 0.9 * n_reachable


@pytest.mark.slow
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", FLAWS)
def test_flaw_does_not_affect_models_that_ignore_the_plan(name, severity, played):
    for task, plan in flawed(ALL[::45], name, severity):
        for instrument in (*THOROUGH, *EMPTY, *OTHERS):
            episode, outcome = played(instrument, task.task_id)
            verdict = score(replace(episode, given=plan))
            assert verdict.outcome == outcome
            if instrument in THOROUGH:
                obeyed, repaired = verdict.scores["obeyed"], verdict.scores["repaired"]
                assert (obeyed, repaired) == (0, 1), task.task_id


@pytest.mark.parametrize("name", FLAWS)
def test_model_without_calls_neither_obeyed_nor_repaired(name):
    for task, plan in flawed(ALL[::30], name, "severe"):
        for said in ("TASK_COMPLETED", "<tool_call>no_tool {}</tool_call>"):
            scores = score(play((text for text in [said]), task, plan)).scores
            assert (scores["obeyed"], scores["repaired"]) == (0, 0)


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize(
    "tasks",
    [
        pytest.param(ALL[::15], id="sample"),
        pytest.param(ALL[::9], id="ninth", marks=pytest.mark.slow),
    ],
)
def test_difficulty_affects_models_that_need_named_tools(tasks, difficulty):
    is_named = difficulty in {"very_easy", "easy"}
    for task in tasks:
        knows = play(instruments.flawless(task, task.plan), task, difficulty=difficulty)
        follows = play(instruments.literal(task, difficulty), task, difficulty=difficulty)
        assert score(knows).outcome == "solved", task.task_id
        assert score(follows).outcome == ("solved" if is_named else "unsolved"), task.task_id


@pytest.fixture(scope="module")
def played():
    """Episodes of models that ignore the plan, and their outcomes."""

    @cache
    def find(instrument, task_id):
        task = TASKS.by_id[task_id]
        episode = play(instrument(task, task.plan), task)
        return episode, score(episode).outcome

    return find
