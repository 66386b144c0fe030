import json

import pytest

from bench_suites.workflow.reply_parser import (
    Action,
    parse_reply,
)
from tests.unit.workflow_models import Native

READER = "file_operations_reader"
ARGUMENTS = {"source": "data/orders/2024-01.csv"}
TEXT = json.dumps(ARGUMENTS)
CALL = Action("call", READER, ARGUMENTS)


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{READER} {TEXT}</tool_call>",
        f"<tool_call>{READER} {TEXT}",
        f"<tool_call>{READER} {TEXT}</tool_call",
        f"<tool_call>{READER}\n{TEXT}\n</tool_call>",
        f"<tool_call> {READER}({TEXT}) </tool_call>",
        f"<tool_call>{READER}: {TEXT}</tool_call>",
        f"<tool_call>`{READER}`\n```json\n{TEXT}\n```\n</tool_call>",
        f"<tool_call>{READER} arguments: {TEXT}</tool_call>",
        f"<TOOL_CALL>{READER} {TEXT}</TOOL_CALL>",
        f"< tool_call >{READER} {TEXT}</ tool_call >",
        f'<tool_call id="1">{READER} {TEXT}</tool_call>',
        f"<tool_call>{READER} {TEXT}</tool_search>",
        f"I will read it. <tool_call>{READER} {TEXT}</tool_call> Then I wait for the result.",
        f"<tool_call>{READER} {TEXT} and now I wait",
        f"<tool_call>{json.dumps({'name': READER, 'arguments': ARGUMENTS})}</tool_call>",
        f"<tool_call>\n{json.dumps({'name': READER, 'arguments': ARGUMENTS}, indent=2)}\n",
        f"<tool_call>{json.dumps({'tool': READER, 'parameters': ARGUMENTS})}</tool_call>",
        f"<tool_call>{json.dumps({'name': READER, 'arguments': TEXT})}",
        f"<think>first <tool_call>network_fetcher</tool_call></think><tool_call>{READER} {TEXT}",
    ],
)
def test_parser_reads_a_call_in_every_dress(text):
    assert parse_reply(text).actions == (CALL,)


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{READER}</tool_call>",
        f"<tool_call>{READER}",
        f"<tool_call>{READER}()</tool_call>",
        f"<tool_call>{READER}\n\nNow I wait for the result {{see above}}.",
        f'<tool_call>"{READER}"</tool_call>',
    ],
)
def test_parser_takes_a_name_alone_for_a_call_without_arguments(text):
    assert parse_reply(text).actions == (Action("call", READER, {}),)


@pytest.mark.parametrize(
    "rest",
    [
        ' {"source": "data',
        ' source="data/x.csv"',
        ' ["data/x.csv"]',
        " source: data/x.csv",
        ' {"source": NaN}',
        f' {{"n": {"9" * 5000}}}',
        ' {"a": ' * 2000,
        f' {{"a": {"[" * 20}1{"]" * 20}}}',
    ],
)
def test_parser_marks_arguments_that_are_no_json_object(rest):
    (action,) = parse_reply(f"<tool_call>{READER}{rest}</tool_call>").actions
    assert action.kind == "call"
    assert action.text == READER
    assert action.arguments is None


def test_parser_never_searches_arguments_for_names_or_tags():
    inner = {"message": "<tool_call>network_poster</tool_call> and utility_notifier"}
    text = f"<tool_call>utility_logger {json.dumps(inner)}</tool_call>"
    assert parse_reply(text).actions == (Action("call", "utility_logger", inner),)
    text = "<tool_call>write_it utility_logger network_poster</tool_call>"
    assert parse_reply(text).actions == (Action("call", "write_it", None),)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (READER, TEXT, CALL),
        (READER, "", Action("call", READER, {})),
        (READER, '{"source": ', Action("call", READER, None)),
        (READER, "[1]", Action("call", READER, None)),
        ("tool_search", '{"query": "read a file"}', Action("search", "read a file")),
        ("tool_info", json.dumps({"name": READER}), Action("info", READER)),
        ("tool_call", json.dumps({"name": READER, "arguments": ARGUMENTS}), CALL),
        ("tool_call", "nonsense", Action("call", "", None)),
    ],
)
def test_parser_reads_native_calls(name, arguments, expected):
    assert parse_reply("", None, (Native(name, arguments),)).actions == (expected,)


def test_parser_takes_reasoning_for_the_answer_when_there_is_no_content():
    reasoning = f"I should read it. <tool_call>{READER} {TEXT}"
    assert parse_reply(" \n", reasoning).actions == (CALL,)
    assert parse_reply(" \n", reasoning).text == reasoning
    assert parse_reply("Hello", reasoning).actions == ()
    assert parse_reply("", reasoning, (Native("utility_logger", "{}"),)).actions == (
        Action("call", "utility_logger", {}),
    )
    assert parse_reply("", None).text == ""


@pytest.mark.parametrize("name", ["tool_search", "tool_info", "tool_call", "reader\ud800"])
@pytest.mark.parametrize("arguments", [r'{"query": "\ud800"}', r'{"name": "a\udfffb"}'])
def test_parser_gives_texts_of_native_calls_that_can_be_sent(name, arguments):
    parsed = parse_reply("", native=[Native(name, arguments)])
    for action in parsed.actions:
        assert action.text.encode().decode() == action.text
        assert "?" not in action.text
