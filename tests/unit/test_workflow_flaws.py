from collections import Counter

import pytest

from bench_suites.workflow import (
    FLAWS,
    TASK_TYPES,
    TASKS,
    FlawError,
    Plan,
    PlanStep,
    check_room,
    draw_flawed,
    flaw,
    flaw_set,
    load_tools,
)
from bench_suites.workflow.arguments import check_arguments
from bench_suites.workflow.spots import spots

FIVE = next(task for task in TASKS.by_id.values() if len(task.required) == 5)
ALL = list(TASKS.by_id.values())


def severe(name, task, **options):
    return flaw(name, **options).apply(task.plan, seed=5)


def refused_steps(plan, task):
    known = {value for value in task.inputs.values() if isinstance(value, str)}
    return [
        step.tool
        for step in plan.steps
        if check_arguments(load_tools()[step.tool], dict(step.parameters), known) is not None
    ]


def test_flaw_names_and_severities_that_do_not_exist_are_refused():
    with pytest.raises(FlawError, match="'missing' is unknown; allowed are sequence_disorder"):
        flaw("missing")
    with pytest.raises(FlawError, match="'hard' is unknown; allowed are light, medium, severe"):
        flaw("missing_step", severity="hard")
    with pytest.raises(FlawError, match="'most' is unknown; allowed are core, document, all"):
        flaw_set("most")


@pytest.mark.parametrize(
    ("name", "size", "groups"),
    [("core", 7, [3, 2, 2]), ("document", 7, [2, 3, 2]), ("all", 11, None)],
)
def test_flaw_sets_have_the_documented_groups(name, size, groups):
    names = flaw_set(name)
    assert len(names) == len(set(names)) == size
    assert set(names) <= set(FLAWS)
    if groups:
        assert list(Counter(FLAWS[n].group for n in names).values()) == groups


def test_flaw_that_changes_nothing_in_a_plan_raises():
    one = Plan("t", (PlanStep("utility_logger", "log", (("message", "x"),)),))
    for name in ("sequence_disorder", "missing_step", "logical_inconsistency"):
        with pytest.raises(FlawError, match=r"cannot change the plan of t: following the"):
            flaw(name).apply(one)


UNUSABLE = {
    # In these tasks no step, or no neighbouring step, needs another; the seed has no influence.
    ("sequence_disorder", "light"): 79,
    ("sequence_disorder", "severe"): 72,
    # No argument has a format that can be replaced by another.
    ("logical_inconsistency", "light"): 134,
    ("logical_inconsistency", "severe"): 134,
}


@pytest.mark.slow
@pytest.mark.parametrize("severity", ["light", "severe"])
@pytest.mark.parametrize("name", FLAWS)
def test_flaw_changes_the_calls_of_every_task_or_the_task_is_not_used(name, severity):
    n_unusable = 0
    for task in ALL:
        try:
            spoilt = severe(name, task, severity=severity)
        except FlawError:
            n_unusable += 1
        else:
            assert spots(task.plan, spoilt)
    assert n_unusable == UNUSABLE.get((name, severity), 0)


def test_task_that_a_flaw_cannot_change_gets_the_same_substitute_for_all_models():
    chosen = flaw("sequence_disorder")
    for task_type in TASK_TYPES:
        n_tasks = len(TASKS.of_type(task_type))
        drawn = [draw_flawed(chosen, task_type, n, 3) for n in range(n_tasks)]
        own = [TASKS.draw(task_type, n, 3) for n in range(n_tasks)]
        for found, task in zip(drawn, own, strict=True):
            assert found.is_substitute is (found.task is not task)
            assert spots(found.task.plan, found.plan)
        # The first half of the draws contains no task twice if there are enough tasks.
        n_usable = sum(not one.is_substitute for one in drawn)
        first = [one.task.task_id for one in drawn[: n_usable // 2]]
        assert len(set(first)) == len(first)
        assert draw_flawed(chosen, task_type, n_tasks + 1, 3) == drawn[1]


def test_flaw_that_fits_no_task_of_a_type_is_refused(monkeypatch):
    tasks = tuple(t for t in TASKS.of_type("simple_task") if not any(s.needs for s in t.plan.steps))
    monkeypatch.setattr(type(TASKS), "of_type", lambda *_: tasks)
    monkeypatch.setattr(type(TASKS), "in_order", lambda *_: tasks)
    with pytest.raises(FlawError, match="cannot change the plan of any task of type simple_task"):
        draw_flawed(flaw("sequence_disorder"), "simple_task", 0, 12345)
    with pytest.raises(FlawError, match="cannot change the plan of any task of type simple_task"):
        check_room(flaw("sequence_disorder"), "simple_task")
    check_room(flaw("missing_step"), "simple_task")


@pytest.mark.parametrize("name", ["parameter_error", "parameter_issues"])
def test_parameter_flaws_make_tools_refuse_the_plans_arguments(name):
    for task in ALL:
        spoilt = severe(name, task)
        assert spoilt.tools == task.required
        n_refused = len(refused_steps(spoilt, task))
        assert n_refused == min(len(task.required) // 2 + 1, len(task.required)), task.task_id
        assert len(refused_steps(severe(name, task, severity="light"), task)) == 1


def test_parameter_error_changes_values_and_parameter_issues_changes_names():
    values, names = severe("parameter_error", FIVE), severe("parameter_issues", FIVE)
    for step, sound in zip(values.steps, FIVE.plan.steps, strict=True):
        assert [name for name, _ in step.parameters] == [name for name, _ in sound.parameters]
    for step, sound in zip(names.steps, FIVE.plan.steps, strict=True):
        assert [value for _, value in step.parameters] == [value for _, value in sound.parameters]


def test_missing_step_is_still_mentioned_only_when_light():
    task = next(
        t for t in ALL if t.task_type == "data_pipeline" and "file_operations_writer" in t.required
    )
    for severity in ("medium", "severe"):
        spoilt = severe("missing_step", task, severity=severity)
        assert {need for step in spoilt.steps for need in step.needs} <= set(spoilt.tools)
    light = [
        flaw("missing_step", severity="light").apply(task.plan, seed=seed) for seed in range(20)
    ]
    assert any(
        not {need for step in plan.steps for need in step.needs} <= set(plan.tools)
        for plan in light
    )


def test_logical_inconsistency_lets_earlier_steps_need_later_ones():
    spoilt = severe("logical_inconsistency", FIVE)
    assert spoilt.tools == FIVE.required
    for index in range(len(spoilt.steps) - 1):
        assert spoilt.tools[index + 1] in spoilt.steps[index].needs
        handed = spoilt.steps[index].purpose.split("; hand ")[1].split(" on to")[0]
        assert f"take {handed}" not in spoilt.steps[index + 1].purpose


def test_contradictory_instructions_give_a_parameter_two_values():
    for step in severe("contradictory_instructions", FIVE).steps:
        names = Counter(name for name, _ in step.parameters)
        twice = [name for name, count in names.items() if count == 2]
        assert len(twice) == 1
        assert len({str(value) for name, value in step.parameters if name == twice[0]}) == 2
        assert step.purpose not in FIVE.purposes
