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
def test_parser_distinguishes_missing_from_invalid_arguments(rest, arguments):
    assert parse_reply(f"<tool_call>{READER}{rest}").actions == (Action("call", READER, arguments),)


def test_parser_never_searches_arguments_for_names_or_tags():
    inner = {"message": "<tool_call>network_poster</tool_call> and utility_notifier"}
    text = f"<tool_call>utility_logger {json.dumps(inner)}</tool_call>"
    assert parse_reply(text).actions == (Action("call", "utility_logger", inner),)
    text = "<tool_call>write_it utility_logger network_poster</tool_call>"
    assert parse_reply(text).actions == (Action("call", "write_it", None),)


def test_parser_reads_calls_in_the_reasoning_when_there_is_no_content():
    reasoning = f"I should read it. <tool_call>{READER} {TEXT}"
    assert parse_reply(" \n", reasoning).actions == (CALL,)
    # Reasoning is not the answer: it does not end an episode and is not sent back.
    assert parse_reply("", reasoning).text == ""
    assert parse_reply("", reasoning, is_cut=True).actions == ()
    assert parse_reply("", f"This one:\n{NAMED}").actions == (CALL,)
    assert parse_reply("Hello", reasoning).actions == ()
    assert parse_reply("", reasoning, (Native("utility_logger", "{}"),)).actions == (
        Action("call", "utility_logger", {}),
    )
    assert parse_reply("", None).text == ""


@pytest.mark.parametrize("name", ["tool_search", "tool_info", "tool_call", "reader\ud800"])
@pytest.mark.parametrize("arguments", [r'{"query": "\ud800"}', r'{"name": "a\udfffb"}'])
def test_parser_returns_texts_of_native_calls_that_can_be_sent(name, arguments):
    parsed = parse_reply("", native=[Native(name, arguments)])
    for action in parsed.actions:
        assert action.text.encode().decode() == action.text
        assert "?" not in action.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("a</think>b<think>c</think>d", "bd"),
        ("a<think>b", "a"),
        ("<think>TASK_COMPLETED", ""),
    ],
)
def test_parser_omits_reasoning(text, said):
    assert parse_reply(text).text == said


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        (f"<tool_call>{READER} {TEXT}", (CALL,)),
        (f"<tool_call>{READER} {TEXT}\nWhile I wa", (CALL,)),
        (f"<tool_call>{READER} {TEXT[:-1]}", ()),
        (f"<tool_call>{READER}", ()),
        (f"<tool_call>{READER}</tool_call> and", (Action("call", READER, {}),)),
        (f"<tool_search>a b</tool_search><tool_info>{READER[:6]}", (Action("search", "a b"),)),
        (f"<function={READER}>{TEXT}</function>", (CALL,)),
        (f"<function={READER}>{TEXT}", ()),
        (f"<tool_call><function={READER}><parameter=source>a</parameter><parameter=b>", ()),
        (f"<tool_call>{READER} {TEXT}</tool_call><function=a><parameter=b>1</parameter>", (CALL,)),
        (f'{{"name": "{READER}", "arguments": {TEXT}', ()),
    ],
)
def test_parser_accepts_the_complete_calls_of_a_cut_answer(text, actions):
    found = parse_reply(text, is_cut=True)
    assert (found.actions, found.is_cut) == (actions, True)
    assert parse_reply("", None, [Native(READER, TEXT[:-1])], is_cut=True).actions == ()
    assert parse_reply("", None, [Native(READER, TEXT)], is_cut=True).actions == (CALL,)


NAMED = f'{{"name": "{READER}", "arguments": {TEXT}}}'


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        (NAMED, (CALL,)),
        (NAMED.replace("arguments", "parameters"), (CALL,)),
        (NAMED.replace(READER, f"functions.{READER}"), (CALL,)),
        (f"I read it.\n\n```json\n{NAMED}\n```\nAnd wait.", (CALL,)),
        (f"```\n{json.dumps(json.loads(NAMED), indent=2)}\n```", (CALL,)),
        (f"<|python_tag|>{NAMED}<|eom_id|>", (CALL,)),
        (f"[TOOL_CALLS][{NAMED}]", (CALL,)),
        (f"<tool_call>[{NAMED}]</tool_call>", (CALL,)),
        (f"[\n  {NAMED},\n  {NAMED}\n]", (CALL, CALL)),
        (f'{{"type": "function", "function": {NAMED}}}', (CALL,)),
        (f"<function={READER}>{TEXT}</function>", (CALL,)),
        (
            f"<function={READER}>\n<parameter=source>\n{ARGUMENTS['source']}\n</parameter>\n"
            "<parameter=n>\n5\n</parameter>\n</function>",
            (Action("call", READER, {**ARGUMENTS, "n": 5}),),
        ),
        (f"<function={READER}></function>", (Action("call", READER, {}),)),
        (f"<function={READER}>source</function>", (Action("call", READER, None),)),
        ('{"name": "tool_search", "arguments": {"query": "a b"}}', (Action("search", "a b"),)),
        # A mention, or no call.
        (f"I could send {NAMED}, but no.", ()),
        (f"{NAMED} is what I would send.", ()),
        (f"1. {NAMED}", ()),
        (f"> {NAMED}", ()),
        (f'{{"name": "{READER}"}}', ()),
        (TEXT, ()),
        (NAMED[:-1], ()),
        # The prompt's form takes precedence.
        (f"<tool_search>a b</tool_search>\n{NAMED}", (Action("search", "a b"),)),
    ],
)
def test_parser_reads_calls_in_the_formats_of_model_families(text, actions):
    assert parse_reply(text).actions == actions


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm sorry, but I can't assist with that.", True),
        ("I am not able to process this request.", True),
        ("Dabei kann ich leider nicht weiterhelfen.", True),
        ("我无法提供帮助。", True),
        ("I cannot aggregate before the parser has run.", False),
        ("Sorry, I will try again.", False),
        (f"I can't help it: <tool_call>{READER}</tool_call>", False),
    ],
)
def test_parser_distinguishes_a_refusal_from_other_text(text, refuses):
    assert parse_reply(text).is_refusal is refuses
    assert parse_reply("No.", is_refusal=True).is_refusal
