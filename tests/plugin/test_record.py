"""The parts of conversations that a run stores, and their later use."""

from __future__ import annotations

import json

import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.exchanges import said
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.string_parts import read_part
from tests.journals import scan_journal
from tests.plugin.conftest import CANARY
from tests.plugin.test_secrets import leaks

TALK = """
@prefetch
async def talk(llm, word) -> list:
    said = [{"role": "user", "content": f"say {word}", "name": "anna"}]
    first = await llm.chat(said, temperature=0.5, seed=7)
    said += [first.message, {"role": "user", "content": "say bye"}]
    last = await llm.chat(said, temperature=0.5)
    return [first.text, last.text]

@pytest.mark.parametrize("word", ["one", "two"])
def test_talk(talk, word, grade): grade(talk == [word, "bye"])
"""


def episodes(directory):
    """The finished episodes in a run's journal, sorted by case."""
    records = [record for _, record in scan_journal(directory / "journal")]
    found = [record for record in records if isinstance(record, EpisodeEnded)]
    return sorted(found, key=lambda record: record.case_id)


def exchanges(directory):
    """The exchanges of each episode, sorted by case."""
    return [
        said(one.exchanges, lambda name: read_part(directory, name)) for one in episodes(directory)
    ]


def told(project):
    return [(row["turn"], row["role"], row["content"]) for row in project.rows("transcripts")]


def test_run_stores_requests_and_answers(project):
    project.suite(TALK)
    assert project.run("-n0").ret == 0
    assert read_manifest(project.directory).record == "full"
    for first, last in exchanges(project.directory):
        sent = json.loads(first.sent)
        assert sent.pop("messages")[0]["name"] == "anna"
        assert sent == {"temperature": 0.5, "seed": 7}
        assert len(json.loads(last.sent)["messages"]) == 3
        assert json.loads(first.came)["choices"][0]["finish_reason"] == "stop"
        assert (
            first.exchange.turn,
            last.exchange.turn,
            first.exchange.status,
            last.exchange.api,
        ) == (0, 1, 200, "openai")
    assert [one.messages for one in episodes(project.directory)] == [[], []]
    asked, answered = project.rows("transcripts")[:2]
    assert (asked["name"], asked["parameters"]) == ("anna", None)
    assert json.loads(answered["parameters"]) == {"temperature": 0.5, "seed": 7}
    assert (answered["finish_reason"], answered["choice"]) == ("stop", 0)
    assert json.loads(answered["usage"])["prompt_tokens"] > 0


@pytest.mark.slow
def test_full_and_text_have_the_same_transcripts(project):
    project.suite(TALK)
    found = {}
    for record in ("full", "text"):
        assert project.run("-n0", f"--ultrapar-record={record}").ret == 0
        found[record] = told(project)
    assert found["full"] == found["text"]
    assert len(found["text"]) == 8
    assert read_manifest(project.directory).record == "text"
    assert [one.exchanges for one in episodes(project.directory)] == [[], []]


@pytest.mark.slow
def test_run_with_record_none_stores_values_and_can_be_resumed(project):
    project.suite(TALK)
    assert project.run("-n0", "--ultrapar-record=none").ret == 0
    assert told(project) == []
    journal = b"".join(path.read_bytes() for path in (project.directory / "journal").iterdir())
    assert b"say one" not in journal
    assert [json.loads(bytes(one.value))[1] for one in episodes(project.directory)] == ["bye"] * 2
    n_sent = len(project.server.prompts)
    assert project.run("-n0", "--ultrapar-record=none", "--ultrapar-resume=latest").ret == 0
    assert len(project.server.prompts) == n_sent
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 2


FAILS = """
@prefetch
async def answer(llm, prompt) -> str:
    return (await llm.chat([{"role": "user", "content": prompt}], top_p=0.5)).text

@pytest.mark.parametrize(
    "prompt", ["filter", "status 400 why", "status 500 down", "garbage", "hang"]
)
def test_it(answer, prompt): pass
"""


def test_turns_without_an_answer_are_stored_as_sent(project):
    project.write_pool(provider="")
    project.suite(FAILS)
    project.run("-n0", "--ultrapar-max-attempts=1", "--ultrapar-episode-timeout=1")
    found = {json.loads(one.sent)["messages"][0]["content"]: one for (one,) in
             exchanges(project.directory)}  # fmt: skip
    assert {prompt: (one.exchange.status, bool(one.came)) for prompt, one in found.items()} == {
        "filter": (400, True),
        "status 400 why": (400, True),
        "status 500 down": (500, False),
        "garbage": (200, False),
        "hang": (None, False),
    }
    assert all(json.loads(one.sent)["top_p"] == 0.5 for one in found.values())
    assert sorted(content for _, _, content in told(project)) == sorted(found)


def test_request_that_was_never_sent_is_stored_too(project):
    project.write_pool(key=", qps = 0.1")
    project.suite(
        """
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(answer): pass

@prefetch
async def twice(llm) -> str:
    await llm.chat([{"role": "user", "content": "say b"}])
    return (await llm.chat([{"role": "user", "content": "say never"}])).text

def test_twice(twice): pass
"""
    )
    project.run("-n0", "--ultrapar-episode-timeout=1", "-k", "twice")
    assert (1, "user", "say never") in told(project)
    assert "say never" not in project.server.prompts


LEAKY = """
import os

KEY = os.environ["TEST_KEY_0"]
LONG = "data:image/png;base64," + "iVBORw0KGgo" * 3_000

@prefetch
async def leaky(llm) -> str:
    picture = {"type": "image_url", "image_url": {"url": LONG + KEY + LONG}}
    said = [{"role": "user", "content": [picture]}, {"role": "user", "content": "say it"}]
    await llm.chat(said, user=KEY, metadata={"nested": [KEY]}, extra_headers={"x-api-key": KEY})
    said = [{"role": "user", "content": f"say {KEY}"}]
    first = await llm.chat(said)
    said += [first.message, {"role": "user", "content": f"say again {KEY[:14]}"}]
    return (await llm.chat(said, **{KEY: 1})).text

def test_leaky(leaky): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("record", ["full", "text", "none"])
def test_no_stored_file_contains_a_key(project, record):
    project.suite(LEAKY)
    result = project.run("-n0", f"--ultrapar-record={record}")
    assert result.ret == 0, result.stdout.str()
    assert any(CANARY in prompt for prompt in project.server.prompts)
    assert leaks(project) == []
    parts = project.directory / "parts"
    assert parts.is_dir() == (record == "full")
    if record == "full":
        (part,) = parts.iterdir()
        assert b"***" in part.read_bytes()
        ((image, text, again),) = exchanges(project.directory)
        assert json.loads(image.sent)["user"] == "***"
        assert json.loads(text.sent)["messages"][0]["content"] == "say ***"
        assert json.loads(again.sent)["messages"][0]["content"] == "say ***"
        assert "extra_headers" in json.loads(image.sent)


IMAGE = """
IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 3_000

@prefetch
async def seen(llm, n) -> str:
    picture = {"type": "image_url", "image_url": {"url": IMAGE}}
    said = [{"role": "user", "content": [picture]}, {"role": "user", "content": f"say {n}"}]
    first = await llm.chat(said)
    return (await llm.chat([*said, first.message, {"role": "user", "content": "say so"}])).text

@pytest.mark.parametrize("n", range(6))
def test_seen(seen, n): pass
"""


@pytest.mark.slow
def test_image_is_stored_once_per_run_and_named_in_transcripts(project):
    project.suite(IMAGE)
    assert project.run_apart("-n2", "--ultrapar-record=full").ret == 0
    (part,) = (project.directory / "parts").iterdir()
    segments = list((project.directory / "journal").iterdir())
    assert sum(path.stat().st_size for path in segments) < part.stat().st_size
    assert {json.loads(row["content"])[0]["image_url"]["url"]
            for row in project.rows("transcripts")
            if row["content"].startswith("[")} == {f"parts/{part.name}"}  # fmt: skip
    n_sent = len(project.server.prompts)
    assert project.run("-n0", "--ultrapar-resume=latest").ret == 0
    assert len(project.server.prompts) == n_sent
    part.unlink()
    compact(project.directory)
    first = json.loads(project.rows("transcripts")[0]["content"])
    assert first[0]["image_url"]["url"] == f"(parts/{part.name} can no longer be read)"


NATIVE = """
import httpx

@prefetch
async def native(llm, prompt) -> list:
    client = llm.httpx_client(httpx)
    asked = {"messages": [{"role": "user", "content": prompt}], "model": "m", "logprobs": True}
    first = await client.post("https://pool.invalid/v1/chat/completions", json=asked)
    more = [first.json()["choices"][0]["message"], {"role": "user", "content": "say bye"}]
    asked = {**asked, "messages": [*asked["messages"], *more]}
    last = await client.post("https://pool.invalid/v1/chat/completions", json=asked)
    refused = await client.post(
        "https://pool.invalid/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": "status 400 no"}]},
    )
    return [last.json()["choices"][0]["message"]["content"], refused.status_code]

@pytest.mark.parametrize("prompt", ["say hi"])
def test_native(native, grade): grade(native == ["bye", 400])
"""


def test_requests_of_sdks_are_stored_as_bodies_that_can_be_replayed(project):
    project.suite(NATIVE)
    assert project.run("-n0").ret == 0
    ((first, last, refused),) = exchanges(project.directory)
    assert {one.exchange.path for one in (first, last, refused)} == {"/chat/completions"}
    assert {one.exchange.api for one in (first, last, refused)} == {"openai"}
    assert json.loads(first.sent)["logprobs"] is True
    assert json.loads(last.came)["choices"][0]["message"]["content"] == "bye"
    assert (refused.exchange.status, "error" in json.loads(refused.came)) == (400, True)
    assert [content for _, _, content in told(project)] == [
        "say hi", "hi", "say bye", "bye", "status 400 no",
    ]  # fmt: skip
    (episode,) = episodes(project.directory)
    assert "say hi" not in episode.exchanges[1].sent


ON_AZURE = """
import httpx

@prefetch
async def embedded(llm) -> int:
    client = llm.httpx_client(httpx)
    where = "https://pool.invalid/openai/deployments/m/embeddings?api-version=1&user=x"
    said = {"OpenAI-Beta": "one=v1", "x-stainless-lang": "python", "x-mine": "1"}
    return (await client.post(where, json={"input": "hi"}, headers=said)).status_code

def test_embedded(embedded): pass
"""


@pytest.mark.slow
def test_requests_are_stored_in_a_form_that_is_the_same_for_all_lanes_of_a_model(project):
    version = 'api_version = "2024-10-21"'
    project.write_pool(api="azure-openai", provider=version, instances='["m-east"]')
    project.suite(ON_AZURE)
    project.run("-n0")
    ((one,),) = exchanges(project.directory)
    assert (one.exchange.path, one.exchange.query, one.exchange.headers) == (
        "/embeddings",
        "user=x",
        {"openai-beta": "one=v1"},
    )
