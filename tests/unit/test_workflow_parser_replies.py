"""Replies as models write them, each with the calls that have to be read in it."""

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


def test_there_are_enough_replies_of_every_group():
    assert len(REPLIES) >= 60
    assert {reply["group"] for reply in REPLIES} == GROUPS


@pytest.mark.parametrize(
    "reply", REPLIES, ids=[f"{n} {reply['group']}" for n, reply in enumerate(REPLIES)]
)
def test_parser_reads_in_a_reply_what_is_meant(reply):
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
def test_parser_takes_time_in_proportion_to_the_reply(unit):
    """16 times the text in less than 64 times the CPU time; quadratic would be 256.

    One look at the long text that is fast enough will do: what is in its way only makes it slower.

    CPU time is not the same on every machine either, but far from off by a factor of four.
    """

    def took_s(n_bytes: int) -> float:
        text = unit * (n_bytes // len(unit))
        start_s = time.process_time()
        says_it_is_done(parse_reply(text).text)
        parse_reply(text, is_cut=True)
        return time.process_time() - start_s

    # A floor below which the clock's own grain would decide.
    most_s = 64 * max(min(took_s(25_000) for _ in range(3)), 0.0005)
    assert any(took_s(400_000) < most_s for _ in range(3))
