"""The same conversations over all APIs: requests in each API's form, and equal replies.

`golden/chat.json` has the arguments and the replies of `llm.chat()`. `golden/API.json` has the
requests, whole answers and streams on the wire, in the form that the provider documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import api_named, api_names
from pytest_ultrapar.apis.reply import Reply

GOLDEN = Path(__file__).with_name("golden")
LANE = "p/i/k"


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


CHAT = golden("chat")
APIS = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem != "chat")
CASES = [(api, name) for api in APIS for name in CHAT]


def sent(api: str, name: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    parameters = {**CHAT[name]["parameters"], **golden(api)[name].get("parameters", {})}
    return json.loads(api_named(api).request("m-1", messages, parameters))


def events_of(api: str, name: str) -> bytes:
    return b"".join(
        f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n".encode()
        for event in golden(api)[name]["events"]
    )


def answers(api: str, name: str) -> list[Reply | Failure]:
    """The replies from the whole answer, and from the stream in pieces of several sizes."""
    wire, its_api = golden(api)[name], api_named(api)
    found = [its_api.reply(json.dumps(wire["answer"]).encode(), LANE, 1.0)]
    events = events_of(api, name)
    for step in (1, 7, 100_000):
        stream = its_api.stream()
        for start in range(0, len(events), step):
            stream.feed(events[start : start + step], float(start))
        stream.end(1e6)
        assert (stream.t_first_token_s is not None) == isinstance(found[0], Reply)
        found.append(stream.reply(LANE, 1.0))
    return found


def test_every_api_has_every_conversation():
    assert [set(golden(api)) ^ set(CHAT) for api in APIS] == [set()] * len(APIS)
    # Azure and the simulated provider use chat completions at other addresses.
    assert {*APIS} | {"azure-openai", "simulated"} == {*api_names()}


@pytest.mark.parametrize(("api", "name"), CASES)
def test_request_has_the_form_of_its_api(api, name):
    assert sent(api, name, CHAT[name]["messages"]) == golden(api)[name]["request"]


@pytest.mark.parametrize(("api", "name"), [case for case in CASES if "reply" in CHAT[case[1]]])
def test_replies_are_equal_over_all_apis_whole_and_streamed(api, name):
    for reply in answers(api, name):
        said = msgspec.to_builtins(reply)
        said["tool_calls"] = [
            {**call, "arguments": json.loads(call["arguments"])} for call in said["tool_calls"]
        ]
        expected = CHAT[name]["reply"]
        assert {field: said[field] for field in expected} == expected
        assert reply.stop_reason == golden(api)[name]["stop_reason"]
        assert reply.model.startswith("m-1-2026")
        answer = golden(api)[name]["answer"]
        assert reply.id == answer.get("id", answer.get("responseId"))


def said_in(value: Any) -> Any:
    """A body without null values and without fields that only whole answers have."""
    if isinstance(value, list):
        return [said_in(one) for one in value]
    if not isinstance(value, dict):
        return value
    left_out = {"created", "annotations", "native"}
    return {k: said_in(one) for k, one in value.items() if one is not None and k not in left_out}


@pytest.mark.parametrize(("api", "name"), [case for case in CASES if "reply" in CHAT[case[1]]])
def test_joined_stream_is_the_whole_answer_of_its_api(api, name):
    stream = api_named(api).stream()
    stream.feed(events_of(api, name), 1.0)
    stream.end(2.0)
    reply = stream.reply(LANE, 1.0)
    body = stream.one_body(reply)
    expected = json.dumps(golden(api)[name]["answer"]).replace("reasoning_content", "reasoning")
    assert said_in(json.loads(body)) == said_in(json.loads(expected))


@pytest.mark.parametrize(("api", "name"), [case for case in CASES if "failure" in CHAT[case[1]]])
def test_filtered_answers_are_results_of_the_case_over_all_apis(api, name):
    for failure in answers(api, name):
        assert isinstance(failure, Failure)
        expected = CHAT[name]["failure"]
        assert {field: getattr(failure, field) for field in expected} == expected


@pytest.mark.parametrize("api", APIS)
def test_reasoning_is_sent_back_in_the_form_of_its_api(api):
    first = CHAT["reasoning"]["messages"]
    for reply in answers(api, "reasoning"):
        (call,) = reply.tool_calls
        result = {"role": "tool", "tool_call_id": call.call_id, "content": "2026-03-01"}
        body = sent(api, "reasoning", [*first, reply.message, result])
        turns = next(body[name] for name in ("messages", "input", "contents") if name in body)
        assert turns == golden(api)["reasoning"]["sent_back"]
