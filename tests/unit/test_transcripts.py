"""The messages in exchanges: the new messages of each request, and its complete answer."""

from __future__ import annotations

import json

import msgspec
import pytest

from pytest_ultrapar.exchanges import ExchangeLog, part_name
from pytest_ultrapar.records import TurnMessage
from pytest_ultrapar.store.transcripts import turn_messages

CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]


def answer(message=None, finish="stop", **more):
    choice = {"index": 0, "message": {"role": "assistant", **(message or {})}}
    return {"id": "c-1", "model": "m-1", "choices": [{**choice, "finish_reason": finish}], **more}


def event(body):
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class Talk:
    """The exchanges of one episode, and the messages read from them."""

    def __init__(self):
        self.parts = {}
        self.log = ExchangeLog(self.keep, lambda data: data)

    def keep(self, content):
        self.parts[part_name(content)] = content
        return part_name(content)

    def add(self, sent, came, *, turn=0, status=200, api="openai", stream=False):
        body = came if isinstance(came, bytes) else json.dumps(came).encode()
        whole = b"{}" if stream else None
        request = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        self.log.add(turn, api=api, path="", status=status, sent=request, came=body, whole=whole)
        return self

    @property
    def rows(self):
        return turn_messages(self.log.noted, self.parts.__getitem__)

    @property
    def said(self):
        return [(row.turn, row.role, row.content) for row in self.rows]


def fields(row):
    """The fields of a row that are not empty."""
    defaults = TurnMessage(0, "", "")
    named = msgspec.structs.asdict(row)
    return {name: value for name, value in named.items() if value != getattr(defaults, name)}


def test_tool_loop_keeps_ids_and_names_of_calls_and_results():
    talk = Talk()
    said = {"content": None, "tool_calls": [CALL], "reasoning_content": "Hm.", "annotations": []}
    request = {"messages": ASKED, "tools": [{"type": "function"}], "temperature": 0.5}
    talk.add(request, answer(said, "tool_calls", usage={"total_tokens": 3}))
    result = {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "Lima"}
    longer = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, result]
    odd = {"content": None, "refusal": "No.", "audio": {"id": "a"}}
    talk.add({**request, "messages": longer}, answer(odd), turn=1)
    first, second, call, back, last = talk.rows
    assert [first.content, second.content] == ["Be brief.", "Where?"]
    assert fields(call) == {
        "role": "assistant",
        "tool_calls": '[{"name":"look","arguments":"{\\"x\\":1}"}]',
        "tool_call_ids": '["call_1"]',
        "choice": 0,
        "finish_reason": "tool_calls",
        "reasoning": "Hm.",
        "parameters": '{"tools":[{"type":"function"}],"temperature":0.5}',
        "answer_id": "c-1",
        "served_model": "m-1",
        "usage": '{"total_tokens":3}',
    }
    assert fields(back) == {
        "turn": 1, "role": "tool", "content": "Lima", "tool_call_id": "call_1", "name": "look",
    }  # fmt: skip
    assert (last.content, last.refusal, last.other) == ("No.", "No.", '{"audio":{"id":"a"}}')


def test_all_choices_are_rows():
    choices = [answer({"content": str(n)})["choices"][0] for n in range(3)]
    rows = Talk().add({"messages": ASKED, "n": 3}, {**answer(), "choices": choices}).rows
    assert [(row.choice, row.content) for row in rows[2:]] == [(0, "0"), (1, "1"), (2, "2")]


def test_stream_is_joined_into_one_message():
    deltas = [
        {"role": "assistant", "content": ""},
        {"content": "Hel", "reasoning": "H"},
        {"content": "lo", "reasoning": "m"},
        {"tool_calls": [{"index": 0, **CALL, "function": {"name": "look", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    chunks = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks[-1]["choices"][0]["finish_reason"] = "tool_calls"
    chunks.append({"id": "c", "choices": [], "usage": {"total_tokens": 9}})
    came = b"".join(map(event, chunks)) + b"data: [DONE]\n\n"
    row = Talk().add({"messages": ASKED, "stream": True}, came, stream=True).rows[-1]
    assert (row.content, row.reasoning, row.finish_reason) == ("Hello", "Hm", "tool_calls")
    assert (row.tool_calls, row.tool_call_ids) == (
        '[{"name":"look","arguments":"{\\"x\\":1}"}]',
        '["call_1"]',
    )
    assert (row.usage, row.answer_id, row.parameters) == ('{"total_tokens":9}', "c", None)


@pytest.mark.parametrize("status", [None, 400, 500])
def test_request_without_an_answer_is_included(status):
    assert Talk().add({"messages": ASKED}, b"", status=status).said == [
        (0, "system", "Be brief."),
        (0, "user", "Where?"),
    ]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"system": "S", "messages": [{"role": "user", "content": "U"}]}, ["system", "user"]),
        ({"instructions": "S", "input": "U"}, ["system", "user"]),
        (
            {"input": [{"role": "user", "content": "U"}, {"type": "reasoning"}]},
            ["user", "reasoning"],
        ),
        ({"input": ["a", "b"]}, ["user", "user"]),
        ({"prompt": "U"}, ["user"]),
        ({"contents": [{"role": "user", "parts": [{"text": "U"}]}]}, ["user"]),
        (b"--boundary\r\n", ["user"]),
        (b"[1]", ["user"]),
    ],
)
def test_requests_of_all_apis_have_messages(sent, said):
    assert [row.role for row in Talk().add(sent, b"", status=None).rows] == said


def test_completion_without_messages_has_its_text():
    body = {"id": "c", "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    assert Talk().add({"prompt": "U"}, body).said[-1] == (0, "assistant", "Hi")
    came = event({"choices": [{"text": "H"}]}) + event({"choices": [{"text": "i"}]})
    came += event({"choices": [{"text": "", "finish_reason": "stop"}]})
    talk = Talk().add({"prompt": "U"}, came, api="completions", stream=True)
    assert talk.said[-1] == (0, "assistant", "Hi")


@pytest.mark.parametrize(
    "came",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"choices":[7,{"message":9}]}',
        b'{"choices":{}}',
        b'{"choices":[{"message":{"content":[{}],"tool_calls":["x",{"function":3}]}}]}',
        b"[" * 100_000,
        b'{"choices":[' + b"{}," * 2_000_000 + b"{}]}",
        b'{"choices":[{"message":{"content":"\xff \\ud800"}}]}',
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_malformed_answer_does_not_lose_the_transcript(came, stream):
    body = event(json.loads(came)) if stream and came.startswith(b'{"choices":[7') else came
    rows = Talk().add({"messages": ASKED}, body, stream=stream).rows
    assert [row.content for row in rows[:2]] == ["Be brief.", "Where?"]
    assert len(rows) <= 4
    msgspec.json.encode(rows)


def test_answer_of_sixteen_mebibytes_is_one_row():
    text = "word " * 3_200_000
    talk = Talk().add({"messages": ASKED}, answer({"content": text}))
    assert len(msgspec.json.encode(talk.log.noted)) < 1_000
    assert talk.rows[-1].content == text


def test_answer_of_an_unknown_api_has_no_row(monkeypatch):
    talk = Talk().add({"messages": ASKED}, {"odd": "thing"}, api="nobody")
    assert [row.role for row in talk.rows] == ["system", "user"]


def test_turns_are_in_order_regardless_of_answer_times():
    talk = Talk()
    talk.add({"messages": [{"role": "user", "content": "b"}]}, answer({"content": "B"}), turn=1)
    talk.add({"messages": [{"role": "user", "content": "a"}]}, answer({"content": "A"}))
    assert [content for _, _, content in talk.said] == ["a", "A", "b", "B"]


def test_vectors_stay_in_the_journal():
    body = {"object": "list", "model": "e", "data": [{"embedding": [0.5] * 9}], "usage": {"n": 1}}
    row = Talk().add({"input": ["a"], "dimensions": 9}, body, api="embeddings").rows[-1]
    assert (row.role, row.content, row.usage) == ("assistant", "", '{"n":1}')
    assert row.parameters == '{"dimensions":9}'
