"""The personas' small readers, tested with the texts that the suites write."""

import itertools
import json

import pytest

from bench_suites.workflow import (
    DIFFICULTIES,
    FLAWS,
    TASK_TYPES,
    TASKS,
    draw_flawed,
    flaw,
    load_tools,
)
from bench_suites.workflow.arguments import check_arguments
from bench_suites.workflow.feedback import HELP, describe_result, describe_search, describe_tool
from bench_suites.workflow.prompts import build_messages
from bench_suites.workflow.simulation import ToolResult
from pytest_ultrapar.simulator.personas.acting import corrected
from pytest_ultrapar.simulator.personas.reading import read_feedback, read_prompt

ALL = list(TASKS.by_id.values())


def opening(task, plan=None, difficulty="easy"):
    messages = build_messages(
        task, prompt_type="optimal" if plan else "baseline", difficulty=difficulty, plan=plan
    )
    return messages[1]["content"]


def as_json(value):
    return json.loads(json.dumps(value))


def test_prompt_is_read_back_for_every_task():
    for task in ALL:
        prompt = read_prompt(opening(task, task.plan))
        assert prompt.inputs == as_json(task.inputs)
        assert [step.tool for step in prompt.plan] == list(task.required)
        assert [step.purpose for step in prompt.plan] == list(task.purposes)
        for read, step in zip(prompt.plan, task.plan.steps, strict=True):
            assert read.arguments == as_json(dict(step.parameters))
        assert not prompt.wants_reasoning


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_prompt_has_a_clause_for_each_step_at_every_difficulty(difficulty):
    for task in ALL:
        prompt = read_prompt(opening(task, difficulty=difficulty))
        assert len(prompt.clauses) == len(task.required)
        assert prompt.plan == ()


@pytest.mark.parametrize("name", FLAWS)
def test_prompt_with_a_flawed_plan_is_read_as_written(name):
    for repeat, task_type in itertools.product(range(13), TASK_TYPES):
        drawn = draw_flawed(flaw(name), task_type, repeat, 0)
        plan = drawn.plan
        prompt = read_prompt(opening(drawn.task, plan))
        assert tuple(step.tool for step in prompt.plan) == plan.tools
        assert [step.purpose for step in prompt.plan] == [step.purpose for step in plan.steps]


def test_other_prompt_is_read_as_empty():
    for text in ("", "Hello", "Task: ", "Inputs:\n- x", "1. step\n   Purpose: y"):
        prompt = read_prompt(text)
        assert prompt.plan == ()
        assert not any(prompt.clauses)


def test_feedback_of_searches_is_read_back():
    text = describe_search("compress a file") + "\n\n" + describe_search("qqq")
    hits = read_feedback(text).hits
    assert hits.keys() == {"compress a file", "qqq"}
    assert hits["qqq"] == ()
    first = hits["compress a file"][0]
    assert first.tool == "file_operations_compressor"
    assert first.parameters == ("source", "archive", "level")


def test_feedback_of_descriptions_is_read_back_for_every_tool():
    for tool in load_tools().values():
        (seen,) = read_feedback(describe_tool(tool.name)).described
        assert seen.tool == tool.name
        assert seen.parameters == tuple(parameter.name for parameter in tool.parameters)


def test_feedback_of_calls_is_read_back():
    text = "\n\n".join(
        [
            describe_result(ToolResult("utility_cache", None, "{}"), 1),
            describe_result(ToolResult("utility_cache", "TIMEOUT", "too long"), 1),
            HELP,
        ]
    )
    answered = read_feedback(text).answered
    assert [(a.tool, a.error, a.message) for a in answered] == [
        ("utility_cache", None, "{}"),
        ("utility_cache", "TIMEOUT", "too long"),
    ]


@pytest.mark.parametrize("name", ["parameter_error", "parameter_issues", "insufficient_detail"])
def test_refused_arguments_are_corrected_within_a_few_tries(name):
    tries = []
    for task in ALL[::10]:
        known = {value for value in task.inputs.values() if isinstance(value, str)}
        for step in flaw(name).apply(task.plan).steps:
            arguments = dict(step.parameters)
            for attempt in range(6):
                fault = check_arguments(load_tools()[step.tool], arguments, known)
                if fault is None:
                    tries.append(attempt)
                    break
                arguments = corrected(arguments, fault.message, task.inputs)
            else:
                raise AssertionError((task.task_id, step))
    assert max(tries) <= 3
