"""The words of refusals: every entry of the vocabulary, and the patterns that a pool adds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ultrapar.apis import vocabulary
from pytest_ultrapar.apis.classify import classify_status, read_error
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.failure_classes import CLASSES
from pytest_ultrapar.apis.openai import ChatStream
from pytest_ultrapar.engine.answers import Answer, read_answer
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.pool.model import LaneId

TOLD = tomllib.loads(Path(vocabulary.__file__).with_suffix(".toml").read_text("utf-8"))
MEANINGS = TOLD["meanings"]
FAMILIES = (
    "OpenAI, Azure, Anthropic, Gemini, Bedrock, Mistral, Cohere, DeepSeek, DashScope, Moonshot, "
    "xAI, Groq, Together, Fireworks, OpenRouter, vLLM, SGLang, llama.cpp, TGI, Ollama, LM Studio, "
    "TensorRT-LLM, LMDeploy, LiteLLM"
)
FILTERING = "OpenAI, Azure, Anthropic, DeepSeek, DashScope, Moonshot, xAI, OpenRouter, LiteLLM"


def families(meaning: str) -> set[str]:
    return {one["family"] for entry in TOLD[meaning] for one in entry["examples"]}


def test_every_example_is_read_as_its_meaning():
    misread = []
    for meaning, its_own in MEANINGS.items():
        for one in (one for entry in TOLD[meaning] for one in entry["examples"]):
            found = classify_status(one["status"], one["body"].encode(), None)
            outcome = its_own["outcome"]
            if outcome in {"overload", "loading"} and one["status"] in {429, 529}:
                outcome = "rate"
            if (found.meaning, found.outcome) != (meaning, outcome):
                misread.append((meaning, one["family"], found.meaning, found.outcome))
    assert not misread


def finds(entry: dict[str, Any], body: str) -> bool:
    error = read_error(body.encode())
    codes = "|".join(entry.get("codes", ()))
    by_code = any(re.fullmatch(codes, code) for code in error.codes)
    return by_code or re.search(entry.get("words", "$^"), error.text) is not None


def test_every_entry_has_a_source_and_matches_its_example():
    for meaning in MEANINGS:
        for entry in TOLD[meaning]:
            assert any(finds(entry, one["body"]) for one in entry["examples"])
            assert all(one["family"] and one["seen"] for one in entry["examples"])


def test_every_family_has_its_overflow_and_filter_texts():
    assert families("context_length") >= set(FAMILIES.split(", "))
    assert families("content_filter") >= set(FILTERING.split(", "))
    assert {one["outcome"] for one in MEANINGS.values()} <= set(CLASSES)


def test_similar_texts_are_not_misread():
    for entry in TOLD["not"]:
        for one in entry["examples"]:
            found = classify_status(entry["status"], one["body"].encode(), None)
            assert (found.outcome, found.refused_kind) == (entry["outcome"], None), one["family"]


def said(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


@pytest.mark.parametrize(
    ("message", "asked_s", "outcome", "retry_after_s"),
    [
        ("You exceeded your current quota. Please retry in 1.3s.", None, "rate", 1.3),
        ("tokens per day (TPD): Limit 9. Please try again in 9m38.5s.", None, "rate", 578.5),
        ("You exceeded your current quota", 20.0, "rate", 20.0),
        ("requests per day. Try again in 3 hours", None, "daily_quota", 10_800.0),
        ("Please try again later", None, "rate", None),
        ("Limit 30,000, Requested ~30,001. Try again in 2s.", None, "too_large", 2.0),
        ("requested 500 tokens, limit: 100, of a limit of 1,000", None, "rate", None),
    ],
)
def test_numbers_and_times_take_precedence_over_words(message, asked_s, outcome, retry_after_s):
    found = classify_status(429, said(message), asked_s)
    assert (found.outcome, found.retry_after_s) == (outcome, pytest.approx(retry_after_s))


def test_code_takes_precedence_over_times_and_words():
    gone = classify_status(429, said("retry in 5s", code="credit_balance_exhausted"), 5.0)
    assert gone.outcome == "quota"
    budget = said("no", metadata={"limit_source": "openrouter_in_flight_budget"})
    assert classify_status(402, budget, None).outcome == "rate"
    assert classify_status(402, said("no"), 3.0).outcome == "rate"
    assert classify_status(402, said("no"), None).outcome == "quota"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 412, 422, 429, 500])
def test_prompt_refusals_are_recognised_on_any_status(status):
    flagged = classify_status(status, said("Your input was flagged for something"), None)
    assert (flagged.outcome, flagged.refused_kind) == ("refused", "content_filter")
    long = classify_status(status, said("It is longer than the model's context length"), None)
    assert (long.outcome, long.refused_kind) == ("refused", "context_length")


@pytest.mark.parametrize("status", [501, 505])
def test_unsupported_operation_is_a_bad_request(status):
    # llama.cpp without --embeddings returns 501, and a retry gets the same
    unable = said("This server does not support embeddings. Start it with `--embeddings`")
    assert classify_status(status, unable, None).outcome == "bad_request"
    assert classify_status(status, unable, None, {"x-should-retry": "true"}).outcome == "overload"


def test_unsupported_operation_in_a_stream_is_a_bad_request():
    body = b'data: {"error": {"message": "no such thing", "status": "UNIMPLEMENTED"}}\n\n'
    assert read(ENDPOINT, 200, body).outcome == "bad_request"


ENDPOINT = Endpoint(LaneId("p/m/k"), "p", "m", "k", "http://127.0.0.1:1", "sk-secret", "m", 5.0)
TAUGHT = replace(ENDPOINT, patterns={"context_length": ("Will Not FIT",), "quota": ("^broke",)})


def read(endpoint: Endpoint, status: int, body: bytes) -> Failure:
    stream = None
    if body.startswith(b"data:"):
        stream = ChatStream()
        stream.feed(body, 1.0)
    found = read_answer(Answer(status, {}, body, 0.0, stream), endpoint, 0.5)
    assert isinstance(found, Failure)
    return found


@pytest.mark.parametrize("status", [400, 413, 422])
def test_unknown_refusal_suggests_a_pattern_and_the_pattern_works(status):
    body = said("It will not fit.")
    unknown = read(ENDPOINT, status, body)
    assert unknown.outcome in {"bad_request", "too_large"}
    assert unknown.message.startswith(f"HTTP {status}: ")
    assert (
        "if this is a context overflow or a content filter, "
        "add a pattern for the error's text to the provider's `patterns` in the pool"
        in unknown.message
    )
    for there in (body, b"data: " + body + b"\n\n"):
        found = read(TAUGHT, 200 if there is not body else status, there)
        assert (found.outcome, found.refused_kind) == ("refused", "context_length")
        assert (
            "add a pattern for the error's text to the provider's `patterns` in the pool"
            not in found.message
        )
    assert read(TAUGHT, status, said("broke")).outcome == "quota"
    quoted = json.dumps({"error": {"message": "no"}, "prompt": "will not fit"}).encode()
    assert read(TAUGHT, status, quoted).outcome == unknown.outcome


HINT = "add a pattern for the error's text to the provider's `patterns` in the pool"
RENAME = "set the model's `parameters` in the pool"


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (404, said("Not Found"), ""),
        (418, said("I'm a teapot"), ""),
        (405, said("Method Not Allowed"), ""),
        (400, b"", ""),
        (422, b'{"detail": [{"loc": ["body", "n"], "msg": "must be positive"}]}', ""),
        (422, said("temperature must be below 2", param="temperature"), ""),
        (400, said("n: the field must be positive"), ""),
        (400, said("The model `m` does not do this"), ""),
        (400, said("invalid model name"), ""),
        (400, said("too long for the model's window", param="messages"), HINT),
        (400, b"<html>no</html>", HINT),
        (400, said("Unsupported parameter: 'max_tokens' is not with this model"), RENAME),
        (400, said("no", code="unsupported_parameter", param="max_tokens"), RENAME),
        (400, said("Unrecognized request argument supplied: seed"), RENAME),
        (422, said("the parameter seed is not supported"), RENAME),
    ],
)
def test_hint_is_given_only_if_it_can_apply(status, body, hint):
    message = read(ENDPOINT, status, body).message
    assert {one for one in (HINT, RENAME) if one in message} == ({hint} if hint else set())
    taught = replace(ENDPOINT, patterns={"context_length": (".",)})
    message = read(taught, status, body).message
    assert HINT not in message
    assert RENAME not in message


def test_redirect_names_its_target_without_secrets_and_is_final():
    headers = {"location": "https://me:pw@h.example/v1/?sig=secret#x"}
    found = classify_status(307, b"", None, headers)
    assert (found.outcome, found.is_final) == ("malformed", True)
    assert found.message == (
        "HTTP 307: the server redirects to https://h.example/v1/?..., but redirects are not "
        "followed: set base_url in the pool to the server's own address"
    )
    assert "the server redirects, but" in classify_status(301, b"", None).message


def test_vocabulary_is_read_at_the_first_failure_only():
    code = "import sys, pytest_ultrapar.apis.openai; assert 'tomllib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
