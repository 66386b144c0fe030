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
    ("rest", "arguments"),
    [
        ("()</tool_call>", {}),
        ("\n\nNow I wait for the result {see above}.", {}),
        (f' {{"a": {"[" * 20}1{"]" * 20}}}</tool_call>', None),
    ],
)
def test_parser_tells_no_arguments_from_those_that_it_cannot_take(rest, arguments):
    assert parse_reply(f"<tool_call>{READER}{rest}").actions == (Action("call", READER, arguments),)


def test_parser_never_searches_arguments_for_names_or_tags():
    inner = {"message": "<tool_call>network_poster</tool_call> and utility_notifier"}
    text = f"<tool_call>utility_logger {json.dumps(inner)}</tool_call>"
    assert parse_reply(text).actions == (Action("call", "utility_logger", inner),)
    text = "<tool_call>write_it utility_logger network_poster</tool_call>"
    assert parse_reply(text).actions == (Action("call", "write_it", None),)


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
