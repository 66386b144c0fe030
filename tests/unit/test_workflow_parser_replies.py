"""Replies as models write them, each with the calls that the parser must find."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path

import pytest

from bench_suites.workflow.conversation import says_it_is_done
from bench_suites.workflow.reply_parser import Action, parse_reply
from tests.unit.workflow_models import Native

REPLIES = tomllib.loads(Path(__file__).with_name("parser_replies.toml").read_text())["reply"]
GROUPS = {
    "exact", "unclosed", "json", "broken json", "native", "two calls", "prose", "fence",
    "wrong name", "name in arguments", "empty", "reasoning", "languages", "tags",
}  # fmt: skip


def test_every_group_has_replies():
    assert len(REPLIES) >= 60
    assert {reply["group"] for reply in REPLIES} == GROUPS


@pytest.mark.parametrize(
    "reply", REPLIES, ids=[f"{n} {reply['group']}" for n, reply in enumerate(REPLIES)]
)
def test_parser_finds_the_intended_calls_of_a_reply(reply):
    native = [Native(one["name"], one["arguments"]) for one in reply.get("native", [])]
    expected = [
        Action(
            one["kind"],
            one["text"],
            json.loads(one["arguments"]) if "arguments" in one else None,
        )
        for one in reply["expected"]
    ]
    parsed = parse_reply(reply["text"], reply.get("reasoning"), native)
    assert list(parsed.actions) == expected


@pytest.mark.parametrize(
    "unit",
    [
        "I think about the next step. ",
        "<tool_call>",
        "I would write <tool_call> tags later. ",
        "<tool_call>file_operations_reader ",
        '<tool_call>file_operations_reader {"source": "',
        "<tool_call>x {" + '"a": {' * 20,
        "</tool_call>",
        "<<<<",
        "</think>",
        "<think>",
        '{"name": "x", "arguments": {\n',
        "<function=x>",
        "<tool_call><function=x>",
        "<function=x><parameter=y>",
        "I can't ",
        "\n",
        " ",
        "[",
        "[\n",
        "{}\n",
        '{"name": "x", "arguments": {}}' + " " * 10_000 + "x",
        "<tool_call><function=x>" + "<parameter=y>" * 1000,
        "." + "*" * 10_000,
        "TASK_COMPLETED" + " " * 1000,
        "a\n\n",
        "#",
    ],
)
def test_parser_needs_time_in_proportion_to_the_reply(unit):
    """16 times the text takes less than 64 times the CPU time; quadratic time is 256 times.

    One fast parse of the long text is enough, since other processes only make it slower. CPU time
    varies between runs, too, but by far less than a factor of four.
    """

    def took_s(n_bytes: int) -> float:
        text = unit * (n_bytes // len(unit))
        start_s = time.process_time()
        says_it_is_done(parse_reply(text).text)
        parse_reply(text, is_cut=True)
        return time.process_time() - start_s

    # Below this floor the resolution of the clock decides.
    most_s = 64 * max(min(took_s(25_000) for _ in range(3)), 0.0005)
    assert any(took_s(400_000) < most_s for _ in range(3))
