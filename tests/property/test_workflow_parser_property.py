"""An episode accepts any output of a model: no text, tag or argument crashes the loop."""

import asyncio
import json

import msgspec
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bench_suites import workflow
from bench_suites.workflow.reply_parser import parse_reply
from tests.examples import examples
from tests.unit.workflow_models import Native, Said, Scripted

NAMES = st.sampled_from([*workflow.load_tools(), "tool_search", "tool_call", "nothing", ""])
PIECES = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<tool_search>",
        "</tool_search>",
        "<tool_info>",
        "<think>",
        "</think>",
        "<function=",
        "</function>",
        "<parameter=a>",
        "functions.",
        "TASK_COMPLETED",
        "<",
        ">",
        "{",
        "}",
        '"',
        "\\",
        ":",
        "[",
        "]",
        "\n",
        " ",
        "1e999",
        "-0",
        "null",
        "\ud800",
        "\0",
        '{"source": "x"}',
    ]
)
NOISE = st.lists(st.one_of(PIECES, NAMES, st.text(max_size=5)), max_size=25).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=12), JSON, max_size=4)
REPLIES = st.builds(
    Said,
    text=NOISE,
    reasoning=st.none() | NOISE,
    tool_calls=st.lists(
        st.builds(Native, NAMES | NOISE, NOISE | OBJECTS.map(json.dumps)), max_size=3
    ).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", None]),
    refusal=st.none() | NOISE,
)
TASK = workflow.TASKS.draw("data_pipeline", 0, 0)


def can_be_sent(text):
    return text.encode("utf-8", "replace").decode() == text


@given(NOISE | st.text(), st.none() | NOISE)
@example("<tool_call>" * 5000, None)
@example("<tool_call>a " + '{"a":' * 50_000, None)
@example('<tool_call>a {"n": 1' + "0" * 5000, None)
@example("<" * 50_000 + " " * 50_000, None)
def test_parser_accepts_any_text(text, reasoning):
    parsed = parse_reply(text, reasoning)
    assert can_be_sent(parsed.text)
    for action in parsed.actions:
        assert can_be_sent(action.text)
        assert action.kind == "call" or action.arguments is None


@given(NAMES.filter(bool), OBJECTS, st.booleans(), st.booleans())
def test_parser_returns_the_name_and_arguments_that_were_written(name, arguments, closed, ascii_):
    strict = json.loads(json.dumps(arguments).replace("NaN", "0").replace("Infinity", "1"))
    text = f"<tool_call>{name} {json.dumps(strict, ensure_ascii=ascii_)}"
    # Anywhere in a text, these belong to a thought; hypothesis finds the words in the parser's
    # source.
    assume("<think>" not in text and "</think>" not in text)
    assume(not name.startswith("functions."))
    (action,) = parse_reply(text + "</tool_call>" * closed).actions
    assert action.text == name
    assert json.dumps(action.arguments) == json.dumps(
        json.loads(json.dumps(strict, ensure_ascii=ascii_).encode("utf-8", "replace"))
    )


@examples(60)
@given(st.lists(REPLIES, max_size=12), st.integers(0, 2**63 - 1))
def test_episode_accepts_any_replies_and_can_be_stored(replies, seed):
    llm = Scripted(replies)
    episode = asyncio.run(workflow.run_episode(llm, TASK, seed=seed))
    assert all(can_be_sent(text) for text in llm.heard)
    stored = msgspec.json.encode(episode)
    assert msgspec.json.decode(stored, type=workflow.Episode) == episode
    assert len(stored) < 40_000
    verdict = workflow.score(episode)
    assert (verdict.kind is None) == (verdict.outcome == "solved")
    assert all(0 <= value < 1e6 for value in verdict.scores.values())
    json.dumps(verdict.scores, allow_nan=False)
