import json
from dataclasses import replace
from typing import get_args

import pytest

from bench_suites.workflow import TASKS, Call, Episode, score
from bench_suites.workflow.achievement import (
    coverage,
    execution_quality,
    level,
    task_achievement,
)
from bench_suites.workflow.adherence import adherence
from bench_suites.workflow.error_kind import ErrorKind, classify_error
from bench_suites.workflow.simulation import UNKNOWN_TOOL
from bench_suites.workflow.steps import effective, work

A, B, C = "data_processing_parser", "data_processing_transformer", "network_validator"
X = "utility_logger"
TASK = next(task for task in TASKS.of_type("api_integration") if task.required == (A, B, C))


STEPS = {step.tool: step for step in TASK.plan.steps}


def ok(tool, **arguments):
    """A successful call with the task's arguments, except for these."""
    asked = dict(STEPS[tool].parameters) if tool in STEPS else {}
    return Call(0, tool, json.dumps(asked | arguments), ok=True)


def bad(tool, error="OPERATION_FAILED"):
    """A failed call with the task's arguments."""
    asked = dict(STEPS[tool].parameters) if tool in STEPS else {}
    return Call(0, tool, json.dumps(asked), ok=False, error=error)


def episode(*calls, **changes):
    plain = Episode(
        task_id=TASK.task_id,
        task_type=TASK.task_type,
        prompt_type="optimal",
        difficulty="easy",
        tool_success_rate=0.8,
        given=TASK.plan,
        sound=(A, B, C),
        calls=calls,
        n_turns=len(calls) + 1,
        n_searches=0,
        n_infos=0,
        n_helped=0,
        n_unclosed=0,
        completed=True,
        stop="completed",
        reachable=True,
    )
    return replace(plain, **changes)


PERFECT = (ok(A), ok(B), ok(C))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (PERFECT, 0.92),
        ((), 0.0),
        ((bad(A), bad(A)), 0.0),
        ((ok(A), bad(B), ok(B), ok(C)), 0.4 + 0.3 + 0.2 * 3 / 4 + 0.02),
        ((ok(A), ok(A), ok(B), ok(C)), 0.4 + 0.3 + 0.2),
        ((ok(C), ok(B), ok(A)), 0.4 + 0.1 + 0.2),
        ((ok(A), ok(C)), 0.4 * 2 / 3 + 0.3 * 2 / 3 + 0.2),
        ((ok(X), ok(X)), 0.2),
    ],
)
def test_adherence_follows_its_formula(calls, expected):
    assert adherence((A, B, C), calls) == pytest.approx(expected)


def test_verdict_of_a_perfect_episode_is_solved():
    verdict = score(episode(*PERFECT))
    assert (verdict.outcome, verdict.kind) == ("solved", None)
    # Quality 0.4 + 0.3 + 0.2 x 0.92 + 0 (no failure to recover from); achievement 1.
    assert verdict.scores["quality"] == pytest.approx(0.884)
    assert verdict.scores["final"] == verdict.scores["phase2"] == pytest.approx(0.942)
    assert verdict.scores["workflow"] == verdict.scores["workflow_sound"] == pytest.approx(0.92)
    assert verdict.scores["tool_coverage"] == 1


def test_verdict_counts_repair_and_scores_obedience_separately():
    other = replace(STEPS[B], tool=X, parameters=())
    given = replace(TASK.plan, steps=(STEPS[A], other, STEPS[C]))
    repairing = score(episode(*PERFECT, given=given))
    obeying = score(episode(ok(A), ok(X), ok(C), given=given))
    assert repairing.outcome == "solved"
    assert obeying.outcome == "unsolved"
    assert (repairing.scores["obeyed"], repairing.scores["repaired"]) == (0, 1)
    assert (obeying.scores["obeyed"], obeying.scores["repaired"]) == (1, 0)
    assert repairing.scores["workflow"] < repairing.scores["workflow_sound"]
    assert obeying.scores["workflow"] > obeying.scores["workflow_sound"]


def test_call_is_unnecessary_by_its_request_and_not_by_its_result():
    unlucky = score(episode(*PERFECT, bad(X), bad(A)))
    assert (unlucky.outcome, unlucky.scores["needless"]) == ("partial", 2)
    assert score(episode(bad(A), bad(A), *PERFECT)).scores["needless"] == 0
    refused = (bad(X, "INVALID_INPUT"), bad(C, "NOT_READY"), bad("", "UNKNOWN_TOOL"))
    assert score(episode(*refused, *PERFECT)).scores["needless"] == 0


def test_verdict_ignores_random_failures_of_tools():
    calls = (bad(A), bad(A), ok(A), bad(B), bad(B), ok(B), bad(C), ok(C))
    verdict = score(episode(*calls))
    assert (verdict.outcome, verdict.kind) == ("solved", None)
    # The original verdict depends on it.
    assert verdict.scores["verdict_original"] == 0.5


@pytest.mark.parametrize(
    ("calls", "completed", "outcome", "steps", "needless"),
    [
        (PERFECT, False, "solved", 3, 0),
        # A wrong argument: one unnecessary call.
        ((ok(A), ok(B, transform="else"), ok(C)), True, "unsolved", 1, 1),
        # One mistake costs one call, also if the next step comes before the correction.
        ((ok(A, source="data/x.csv"), ok(B), ok(A), ok(B), ok(C)), True, "solved", 3, 1),
        # A repeated call is one more unnecessary call; a failed call may be retried.
        ((ok(A, source="data/x.csv"), ok(B), ok(B), *PERFECT), True, "partial", 3, 2),
        ((ok(A, source="data/x.csv"), bad(B), ok(B), *PERFECT), True, "solved", 3, 1),
        # A default value may be given or omitted; other arguments must not be added.
        ((ok(A), ok(B), ok(C, check="status")), True, "solved", 3, 0),
        ((ok(A), ok(B), ok(C, more=1)), True, "partial", 2, 1),
        # A step that comes too early does not count, and may be repeated.
        ((ok(B), ok(A), ok(C)), False, "unsolved", 1, 0),
        ((*PERFECT, ok(X), ok(A)), True, "partial", 3, 2),
        ((ok(A), ok(B)), False, "partial", 2, 0),
        ((ok(C),), True, "unsolved", 0, 0),
    ],
)
def test_verdict_requires_all_steps_with_the_tasks_arguments_in_order(
    calls, completed, outcome, steps, needless
):
    verdict = score(episode(*calls, completed=completed))
    assert verdict.outcome == outcome
    assert verdict.scores["steps"] == steps / 3
    assert verdict.scores["needless"] == needless
    assert verdict.scores["false_claim"] == (completed and steps < 3)


def test_step_is_undone_by_a_later_input_step_and_can_be_repeated():
    task = next(
        one for one in TASKS.by_id.values()
        if one.required == ("network_fetcher", "data_processing_parser", "utility_cache")
    )  # fmt: skip
    fetch, parse, cache = (
        Call(0, step.tool, json.dumps(dict(step.parameters)), ok=True) for step in task.plan.steps
    )
    assert task.plan.steps[2].needs == ("network_fetcher", "data_processing_parser")
    for calls, done, n_needless in [
        ((fetch, parse, cache), (fetch, parse, cache), 0),
        ((fetch, cache, parse), (fetch, parse), 0),
        ((fetch, cache, parse, cache), (fetch, parse, cache), 0),
        ((fetch, cache, cache, parse), (fetch, parse), 1),
        ((cache, parse, fetch), (fetch,), 0),
        # Only a later step undoes a step, not a missing one.
        ((fetch, cache), (fetch, cache), 0),
    ]:
        came_to = work(task.plan, calls)
        assert came_to.done == tuple(one.tool for one in done)
        assert came_to.n_needless == n_needless


def test_verdict_scores_are_finite_numbers_with_the_documented_names():
    scores = score(episode(*PERFECT)).scores
    assert set(scores) == {
        "workflow", "workflow_sound", "phase2", "quality", "final", "tool_coverage", "arguments",
        "execution", "turns", "tool_calls", "searches", "infos", "unclosed_tags", "assisted",
        "assisted_turns", "steps", "needless", "false_claim", "reachable",
        "verdict_original", "cut_answers",
    }  # fmt: skip
    assert all(isinstance(value, float) for value in scores.values())


def test_arguments_score_is_the_share_that_is_right_at_the_first_try():
    steps = {step.tool: dict(step.parameters) for step in TASK.plan.steps}

    def episode_with(arguments):
        calls = [Call(0, tool, json.dumps(given), ok=True) for tool, given in arguments.items()]
        return score(episode(*calls)).scores["arguments"]

    assert episode_with(steps) == 1
    n_inputs = sum(len(effective(tool, given)) for tool, given in steps.items())
    name = next(iter(steps[A]))
    assert episode_with({**steps, A: {**steps[A], name: "else"}}) == pytest.approx(1 - 1 / n_inputs)
    # A correction after a refusal does not count.
    refused = Call(0, A, json.dumps({**steps[A], name: "else"}), ok=False, error="INVALID_INPUT")
    assert score(episode(refused, *PERFECT)).scores["arguments"] == pytest.approx(1 - 1 / n_inputs)


@pytest.mark.parametrize(
    ("calls", "completed", "expected"),
    [
        (PERFECT, False, "full"),
        ((ok(A), ok(X), bad(B), ok(B), ok(C)), False, "full"),
        ((ok(A), ok(C), ok(B)), False, "partial"),
        ((ok(A), ok(B)), False, "partial"),
        ((ok(A),), True, "failure"),
        ((ok(C),), True, "partial"),
        ((ok(X), ok(X), ok(X)), True, "failure"),
        ((), True, "failure"),
    ],
)
def test_level_follows_order_coverage_progress_and_completion(calls, completed, expected):
    assert level(episode(*calls, completed=completed)) == expected


def test_task_achievement_weighs_output_progress_and_coverage():
    assert task_achievement(episode(*PERFECT)) == 1
    assert coverage(episode(ok(A))) == pytest.approx(1 / 3)
    assert task_achievement(episode(ok(A))) == pytest.approx(0.3 * 0 + 0.3 * 0.5 + 0.4 / 3)
    assert task_achievement(episode(ok(B), ok(C))) == pytest.approx(0.5 + 0.3 + 0.2 * 2 / 3)


def test_execution_quality_rewards_recovery_and_penalises_repetition():
    base = execution_quality(episode(*PERFECT))
    recovered = execution_quality(episode(ok(A), bad(B), ok(B), ok(C)))
    success = 0.4 * 3 / 4 + 0.3 * 0.9 + 0.2 * (0.7 + 0.15 + 0.02) + 0.1 * 0.3
    assert recovered == pytest.approx(success)
    repeated = execution_quality(episode(*(ok(A),) * 9))
    assert repeated < recovered < base
    assert execution_quality(episode()) == 0


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("no_call", episode(stop="silent", completed=False)),
        ("no_call", episode()),
        ("cut", episode(stop="cut", n_cut=1)),
        ("cut", episode(stop="max_turns", n_turns=10, n_cut=6)),
        ("no_call", episode(stop="max_turns", n_turns=10, n_cut=5)),
        ("cut", episode(ok(A), bad(B), stop="cut", n_cut=1)),
        ("refusal", episode(stop="refusal")),
        ("refusal", episode(ok(A), ok(B), stop="refusal")),
        ("luck", episode(ok(A), stop="refusal", reachable=False)),
        ("needless_calls", episode(*PERFECT, ok(X), ok(X), stop="cut", n_cut=1)),
        ("tool_call_format", episode(bad(A, "MALFORMED_CALL"), bad("", "UNKNOWN_TOOL"))),
        ("tool_selection", episode(bad("parse", "UNKNOWN_TOOL"))),
        ("parameter_config", episode(ok(A), bad(B, "INVALID_INPUT"), bad(B, "FILE_NOT_FOUND"))),
        ("sequence_order", episode(bad(B, "NOT_READY"), ok(A))),
        ("dependency", episode(bad(B, "NOT_READY"), bad(B, "NOT_READY"))),
        ("timeout", episode(ok(A), bad(B), bad(B, "TIMEOUT"))),
        ("other", episode(ok(A), bad(B, "TIMEOUT"), bad(B))),
        ("max_turns", episode(ok(A), ok(A), ok(A), completed=False, stop="max_turns")),
        ("needless_calls", episode(*PERFECT, ok(X), ok(X))),
        ("luck", episode(ok(A), bad(B), reachable=False)),
    ],
)
def test_error_kind_follows_from_the_episode(kind, found):
    assert kind in get_args(ErrorKind)
    assert classify_error(found, TASK.plan) == kind


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (episode(), "0 of 3 steps done: the model called no tool"),
        (episode(bad("", UNKNOWN_TOOL)), "0 of 3 steps done: no call was well formed"),
        (episode(stop="refusal"), "0 of 3 steps done: the model refused to continue"),
        (
            episode(ok(A), stop="cut"),
            f"1 of 3 steps done: answers were truncated at their token limit before {B} was done",
        ),
        (
            episode(bad("no_such", UNKNOWN_TOOL)),
            "0 of 3 steps done: the model called only unknown tools",
        ),
        (episode(ok(A)), f"1 of 3 steps done: {B}, which the task needs, was never called"),
        (
            episode(ok(A), ok(B), stop="max_turns"),
            f"2 of 3 steps done: the turns ran out before {C} was called",
        ),
        (
            episode(ok(A), bad(B, "TIMEOUT")),
            f"1 of 3 steps done: {B} timed out and was not called again",
        ),
        (
            episode(ok(A), ok(B), ok(C), ok(X), ok(X)),
            "all 3 steps done, but 2 calls were unnecessary",
        ),
        (episode(ok(A), ok(B), ok(C)), None),
    ],
)
def test_verdict_gives_its_reason_in_one_sentence(found, said):
    assert score(found).reason == said
