"""Unusable answers, and good ones in odd shapes, by each way of sending requests."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from pytest_ultrapar.apis import answer_reading
from tests.faults.byte_faults import body

pytestmark = pytest.mark.slow

EVENTS = b"content-type: text/event-stream"


def whole(content: Any, finish: Any = "stop", *headers: bytes, end: str = "", **more: Any):
    """An answer in one body; `message` and `choice` are more of their fields."""
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": finish, **more.pop("choice", {})}
    return body(json.dumps({"choices": [choice], **more}).encode() + end.encode(), *headers)


def streamed(*pieces: Any, headers: Sequence[bytes] = (EVENTS,)):
    """An unrequested stream; a text is a piece of the answer."""
    events = [
        {"choices": [{"index": 0, "delta": {"content": one}}]} if isinstance(one, str) else one
        for one in pieces
    ]
    said = "".join(f"data: {json.dumps(one)}\n\n" for one in events)
    return body(said.encode(), *headers)


STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
OVERLOAD, FILTER = ("infra", "overload"), ("unsolved", "content_filter")
ANSWERS = {
    "error": (whole("half", "error"), OVERLOAD),
    "abort": (streamed("half", {"choices": [{"delta": {}, "finish_reason": "abort"}]}), OVERLOAD),
    "upstream": (whole("half", None, choice={"error": {"code": 502, "message": "gone"}}), OVERLOAD),
    "event": (streamed("half", {"error": {"message": "exploded"}}), OVERLOAD),
    "cut": (streamed("half"), ("infra", "malformed")),
    "safety": (whole("half", "SAFETY"), FILTER),
    "recited": (whole(None, "content_filter: RECITATION"), FILTER),
    "null": (whole(None), ("solved", None)),
    "refusal": (whole(None, message={"refusal": "null"}), ("solved", None)),
    "odd": (
        whole(
            "odd",
            id=7,
            error="",
            message={"reasoning": {}, "refusal": False},
            choice={"index": "0"},
        ),
        ("solved", None),
    ),
    "unasked": (streamed("un", "asked", STOP), ("solved", None)),
    "unnamed": (streamed("unnam", "ed", STOP, headers=()), ("solved", None)),
    "ended": (whole("ended", "stop", EVENTS, end="\n\ndata: [DONE]\n\n"), ("solved", None)),
    "emoji": (streamed("emoji\ud83d", "\ude00", STOP), ("solved", None)),
}
SUITE = """
import asyncio
import json
import urllib.request

import openai

class Filtered(Exception):
    "The exception of a program for an unusable answer."

@prefetch
async def by_chat(llm, prompt) -> str:
    return (await llm.chat([{"role": "user", "content": prompt}])).text

@prefetch
async def by_sdk(llm, prompt) -> str:
    asked = llm.openai().chat.completions.with_raw_response
    raw = await asked.create(model=llm.model, messages=[{"role": "user", "content": prompt}])
    (choice,) = raw.parse().choices
    if choice.finish_reason != "stop":
        raise openai.APIStatusError("filtered", response=raw.http_response, body=None)
    return choice.message.content or choice.message.refusal or ""

@prefetch
async def by_gateway(llm, prompt) -> str:
    asked = {"model": llm.model, "messages": [{"role": "user", "content": prompt}]}
    headers = {"authorization": f"Bearer {llm.api_key}"}
    request = urllib.request.Request(
        f"{llm.base_url}/chat/completions", json.dumps(asked).encode(), headers
    )
    with await asyncio.to_thread(urllib.request.urlopen, request) as answer:
        assert answer.headers["content-type"] == "application/json"
        (choice,) = json.load(answer)["choices"]
    if choice["finish_reason"] != "stop":
        raise Filtered
    return choice["message"]["content"] or choice["message"].get("refusal") or ""

def check(said, prompt, grade):
    grade((said or "null") == prompt.split()[-1], reason=repr(said))

def test_chat(by_chat, prompt, grade): check(by_chat, prompt, grade)
def test_sdk(by_sdk, prompt, grade): check(by_sdk, prompt, grade)
def test_gateway(by_gateway, prompt, grade): check(by_gateway, prompt, grade)
"""
WAYS = ("chat", "sdk", "gateway")
FAILED = [word for word, (_, (outcome, _)) in ANSWERS.items() if outcome == "infra"]
HALVES = [*FAILED, "safety"]
GOOD = [f"say {n}" for n in range(8)]


def results(project) -> dict[tuple[str, str], tuple[str, str | None]]:
    """The outcome and kind of each way and answer."""
    found = {}
    for row in project.rows():
        name = row["nodeid"].split("::")[-1]
        way, _, word = name.removeprefix("test_").partition("[")
        found[way, word.split(":")[0].split("-")[-1]] = (row["outcome"], row["kind"])
    return found


@pytest.fixture
def suite(project):
    """Write the suite: each answer comes n times to its prompt, then a good one."""
    # All at the same time: failures in a row would pause the lane.
    project.write_pool(seats=64)
    project.server.faults |= {word: fault for word, (fault, _) in ANSWERS.items()}

    def write(words: Iterable[str], times: int, *more: str) -> None:
        expected = {"refusal": "null", "emoji": "emoji\U0001f600"}
        prompts = [f"{word}:{times} {expected.get(word, word)}" for word in words]
        marked = f'pytest.mark.parametrize("prompt", {[*prompts, *more]!r})'
        project.suite(f"{SUITE}\npytestmark = {marked}\n")

    return write


def test_every_way_and_its_replay_have_the_same_outcome(project, suite):
    suite(ANSWERS, len(WAYS))
    expected = {(way, word): out for way in WAYS for word, (_, out) in ANSWERS.items()}
    said = project.run("-n0", "--ultrapar-max-attempts=1").stdout.str()
    assert results(project) == expected
    assert said.count("fields of unexpected types") == 1
    assert (
        "choices.message.reasoning (object), choices.message.refusal (bool)" in project.report.str()
    )
    run = project.directory.resolve()
    # The result of an unusable answer is in the record, without a grade.
    said = [row["content"] for row in project.rows("transcripts") if row["role"] == "assistant"]
    assert said.count("half") == len(WAYS) * len(HALVES)
    n_sent = len(project.server.prompts)
    project.run("-n0", f"--ultrapar-replay={run}", "--ultrapar-coverage=0")
    assert results(project) == expected
    assert len(project.server.prompts) == n_sent


def test_failed_generation_is_sent_again_on_resume(project, suite):
    suite(FAILED, len(WAYS), *GOOD)
    project.run("-n0", "--ultrapar-max-attempts=1")
    infra = [1 for outcome, _ in results(project).values() if outcome == "infra"]
    assert len(infra) == len(WAYS) * len(FAILED)
    project.finish(len(WAYS) * len([*FAILED, *GOOD]))


def test_failed_generation_is_retried(project, suite):
    suite(FAILED, 1, *GOOD)
    assert project.run("-n0").ret == 0
    assert {outcome for outcome, _ in results(project).values()} == {"solved"}
    tries = Counter(row["outcome"] for row in project.rows("attempts"))
    assert (tries["overload"], tries["malformed"]) == (len(FAILED) - 1, 1)


def test_failed_answer_of_an_earlier_version_is_a_miss_on_replay(project, suite, monkeypatch):
    suite(["error"], len(WAYS))
    with monkeypatch.context() as earlier:
        earlier.setattr(answer_reading, "_FAILED", re.compile("(?!)"))
        project.run("-n0")
    assert {outcome for outcome, _ in results(project).values()} == {"unsolved", "error"}
    run = project.directory.resolve()
    project.run("-n0", f"--ultrapar-replay={run}", "--ultrapar-coverage=0")
    assert set(results(project).values()) == {OVERLOAD}
