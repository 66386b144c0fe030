import json

import pytest

from bench_suites.workflow import DIFFICULTIES, TASKS, load_tools
from bench_suites.workflow.feedback import (
    HELP,
    ONE_CALL_PER_MESSAGE,
    describe_search,
    describe_tool,
)
from bench_suites.workflow.prompts import SYSTEM, build_messages
from bench_suites.workflow.tool_search import search_tools

TASK = TASKS.draw("data_pipeline", 0, 0)


def prompt(prompt_type, difficulty="easy", plan=None, task=TASK):
    messages = build_messages(task, prompt_type=prompt_type, difficulty=difficulty, plan=plan)
    assert [message["role"] for message in messages] == ["system", "user"]
    return messages[1]["content"]


def test_prompt_contains_every_input_and_expected_output():
    for task in TASKS.by_id.values():
        text = prompt("baseline", task=task)
        for name, value in task.inputs.items():
            assert f"- {name}: {json.dumps(value, ensure_ascii=False)}\n" in text
        assert all(f"- {output}" in text for output in task.expected_outputs)


def test_prompt_with_a_plan_shows_tool_purpose_parameters_and_needs_of_steps():
    text = prompt("optimal", plan=TASK.plan)
    for number, step in enumerate(TASK.plan.steps, 1):
        assert f"{number}. {step.tool}\n   Purpose: {step.purpose}\n   Parameters: " in text
        assert f"   Needs: {', '.join(step.needs) or 'nothing before it'}" in text
        for name, value in step.parameters:
            assert f"{name} = {json.dumps(value, ensure_ascii=False)}" in text


@pytest.mark.parametrize("prompt_type", ["baseline", "cot"])
def test_prompt_without_a_plan_names_no_tool(prompt_type):
    text = SYSTEM + prompt(prompt_type)
    assert not [name for name in load_tools() if name in text]


def rest(text):
    return "\n".join(line for line in text.split("\n") if not line.startswith("Task: "))


def test_prompt_difficulty_changes_the_task_line_and_the_detail_of_the_plan():
    texts = [prompt("optimal", difficulty, TASK.plan) for difficulty in DIFFICULTIES]
    assert len(set(texts)) == len(DIFFICULTIES)
    whole, outlined = rest(texts[0]), rest(texts[-1])
    assert [rest(text) for text in texts] == [whole] * 2 + [outlined] * 3
    assert not [name for name in load_tools() if name in outlined]
    for step in TASK.plan.steps:
        assert step.purpose in outlined
    assert "Needs: step 1" in outlined


def test_prompt_refuses_unknown_types_and_a_missing_plan():
    with pytest.raises(ValueError, match="allowed are baseline, optimal, cot"):
        prompt("best")
    with pytest.raises(ValueError, match="none was given"):
        prompt("optimal")


def test_help_does_not_reveal_the_answer():
    for text in (HELP, ONE_CALL_PER_MESSAGE, describe_tool("nothing of the kind")):
        assert not [name for name in load_tools() if name in text]


def test_lookups_name_only_hits_the_requested_tool_and_their_dependencies():
    def named(text):
        return {name for name in load_tools() if name in text}

    def with_needs(*tools):
        return {tool.name for tool in tools}.union(*(tool.dependencies for tool in tools))

    for query in ("write the result to a file", "notify", "check an address"):
        assert named(describe_search(query)) == with_needs(*search_tools(query))
    for tool in load_tools().values():
        assert named(describe_tool(tool.name)) == with_needs(tool)


def test_search_answer_shows_parameters_and_dependencies():
    answer = describe_search("write the result to a file")
    assert "1. file_operations_writer: " in answer
    assert "destination (string, required)" in answer
    assert "Needs: data_processing_transformer, network_validator." in answer
    assert "none found" in describe_search("qqq")


def test_tool_answer_describes_a_tool_completely():
    answer = describe_tool("computation_analyzer")
    for part in (
        "metric (string, required), one of mean, median, variance, trend, correlation",
        "threshold (number), default 0.5, from 0, to 1",
        "CALCULATION_ERROR",
        "Needs: data_processing_parser, data_processing_aggregator",
    ):
        assert part in answer
