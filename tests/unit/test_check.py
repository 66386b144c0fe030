"""The result of a check for each lane, and the lanes that a run needs. Nothing is sent."""

from __future__ import annotations

import json

import httpx
import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.failure_classes import CLASSES
from pytest_ultrapar.apis.registry import api_named
from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.broker.protocol import DAILY_QUOTA, KnownLane
from pytest_ultrapar.coordinator.check.lane_report import (
    LaneAnswer,
    failures,
    lane_answer,
    summary_lines,
)
from pytest_ultrapar.coordinator.check.lane_requests import Seen
from pytest_ultrapar.coordinator.check.run_check import needed_lanes
from pytest_ultrapar.engine.answers import Answer
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.lane_check import smallest_body, what_is_wrong
from pytest_ultrapar.errors import InfraError
from pytest_ultrapar.records import Case
from pytest_ultrapar.store.redact import Redactor

CANARY = "sk-canary-4f9a1c77e2b05d"
POOL = """
schema = 1
[[provider]]
name = "lab"
api = "openai"
base_url = "https://api.example.com/v1"
keys = [{ name = "key0", env = "LAB_KEY_0" }, { name = "key1", env = "LAB_KEY_1" }]
[[provider.model]]
name = "m"
instances = ["a", "b"]
"""
OPENAI = "https://api.example.com/v1/chat/completions"
AZURE = "https://box.example.com/openai/deployments/a/chat/completions?api-version=1"
NOT_FOUND = '{"error": {"message": "It does not exist", "code": "DeploymentNotFound"}}'


@pytest.fixture
def load(load):
    return lambda text=POOL: load(text)


def answered(status, body, headers=()):
    return Answer(status, httpx.Headers(headers), body.encode(), 0.0)


def answer_of(lane, said, *, url=OPENAI, **fields) -> LaneAnswer:
    """The result for a lane that gave an answer, or a failure without an answer."""
    api = "azure-openai" if "deployments" in url else "openai"
    fields = {"timeout_s": 20.0, "api": api_named(api), **fields}
    endpoint = Endpoint(
        lane.lane_id, lane.provider, lane.instance, lane.key, url, CANARY, "a", **fields
    )
    failure = what_is_wrong(said, endpoint, 0.5)
    seen = Seen(lane, failure, 0.5, 100.0)
    redact = Redactor([CANARY]).text
    return lane_answer(seen, endpoint, redact=redact)


def completion(**message):
    return answered(200, httpx.Response(200, json={"choices": [message]}).text)


@pytest.mark.parametrize(
    "said",
    [
        completion(message={"content": "OK"}, finish_reason="stop"),
        # The one token went into reasoning, or into text that is not shown.
        completion(message={"content": None}, finish_reason="length"),
        # The provider read the prompt and filtered it.
        answered(400, '{"error": {"message": "no", "code": "content_filter"}}'),
        answered(
            400,
            '{"error": {"message": "Could not finish the message because max_tokens or model '
            'output limit was reached. Please try again with higher max_tokens."}}',
        ),
    ],
)
def test_lane_that_answers_is_ok(load, said):
    answer = answer_of(load().lanes[0], said)
    assert (answer.word, answer.why, answer.latency_s) == ("ok", "", 0.5)


KEY = "key lab/key0 (environment LAB_KEY_0)"
SLOW_DOWN = answered(429, "slow down", [("retry-after", "20")])
ASKED = (
    f"(the request for the model a went to {OPENAI}; check base_url (does it end in /v1?) and the "
    "name)"
)


@pytest.mark.parametrize(
    ("said", "word", "why"),
    [
        (answered(401, "wrong key"), "failed", f"{KEY} was refused (401, or a message that"),
        (
            answered(404, "<html>"),
            "failed",
            f"instance lab/a was not found (404), or does not serve m {ASKED}: HTTP",
        ),
        (SLOW_DOWN, "limited", "the rate limit is reached: (retry after 20.0 s) HTTP 429: slow"),
        (answered(502, "Bad\nGateway"), "unsure", "the server failed or is overloaded: HTTP"),
        (
            answered(400, "'max_tokens'"),
            "failed",
            "instance lab/a refuses even the shortest request for m (check the name under which",
        ),
        (answered(200, "<!DOCTYPE html>"), "failed", f"the answer cannot be read {ASKED}: the"),
        (Failure("tls", "self-signed"), "failed", "instance lab/a presented a certificate that"),
    ],
)
def test_result_of_a_failed_lane_says_what_failed_and_why(load, said, word, why):
    answer = answer_of(load().lanes[0], said)
    assert answer.word == word
    assert answer.why.startswith(why)


def test_missing_azure_deployment_advises_to_check_the_api_version(load):
    answer = answer_of(load().lanes[0], answered(404, NOT_FOUND), url=AZURE)
    sent = f"(the request for the deployment a went to {AZURE.partition('?')[0]}; check base_url"
    assert f"{sent}, api_version and the name)" in answer.cause


@pytest.mark.parametrize("outcome", [*CLASSES])
def test_every_failure_class_has_a_word_and_a_cause(load, outcome):
    if outcome != "refused":
        answer = answer_of(load().lanes[0], Failure(outcome, "x"))
        passing = {"rate": "limited", "congestion": "limited"}
        passing |= dict.fromkeys(("transport", "overload", "timeout"), "unsure")
        assert answer.word == passing.get(outcome, "failed")
        assert answer.cause
        assert answer.label == outcome
        assert "{" not in answer.cause


def test_secret_and_control_characters_of_an_answer_are_not_shown(load):
    body = f'{{"error": {{"message": "wrong key {CANARY}\\u001b[2J\\nnew line"}}}}'
    answer = answer_of(load().lanes[0], answered(401, body))
    assert "wrong key ***" in answer.said
    assert answer.said.isprintable()
    long = answer_of(load().lanes[0], answered(500, "x" * 100_000))
    assert len(long.why) < 300


def test_run_receives_dead_and_paused_lanes_from_the_check(load):
    lane = load().lanes[0]
    known = answer_of(lane, answered(401, "no")).known
    assert known is not None
    assert (known.lane_id, known.at_s) == ("lab/a/key0", 100.0)
    assert known.removed == (
        f"in the initial check, {KEY} was refused (401, or a message that rejects the key)"
    )
    assert answer_of(lane, SLOW_DOWN).known == KnownLane("lab/a/key0", 100.0, retry_after_s=20.0)
    # The server refused only the check's request. It may accept the suite's.
    assert answer_of(lane, answered(400, "no such parameter")).known is None
    assert answer_of(lane, answered(503, "busy")).known is None


def test_summary_counts_lanes_by_failure_and_names_each_cause_once(load):
    pool = load()
    a0, a1, b0, b1 = pool.lanes
    refused = ("failed", 0.1, "refused (401)", "key lab/key1 was refused (401)")
    answers = [
        LaneAnswer(a0, "ok", 0.5),
        LaneAnswer(a1, *refused, "no"),
        LaneAnswer(b0, "limited", 0.1, "rate-limited (429)", "the rate limit is reached (429)"),
        LaneAnswer(b1, *refused, "no, request 17"),
    ]
    assert list(summary_lines(pool, answers)) == [
        "1 of 4 lanes ok: 2 refused (401), 1 rate-limited (429)",
        "failed: lab/a/key1, lab/b/key1: key lab/key1 was refused (401)",
    ]
    assert next(failures(answers[1:2])).endswith("was refused (401): no")


def test_summary_names_lanes_without_a_result_and_models_without_a_lane(load):
    pool = load(POOL + '[[provider.model]]\nname = "n"\n')
    fine = [LaneAnswer(lane, "ok", 0.1) for lane in pool.lanes if lane.model == "n"]
    dead = [
        LaneAnswer(lane, "failed", 0.1, "failing", "it failed")
        for lane in pool.lanes
        if lane.model == "m"
    ]
    assert "no lane is ok for the model m" in list(summary_lines(pool, fine + dead))
    lines = list(summary_lines(pool, fine + dead[:2]))
    assert "no result for lab/b/key0, lab/b/key1" in lines
    assert not [line for line in lines if line.startswith("no lane is ok")]


def test_check_asks_for_the_shortest_answer_that_the_api_allows(load):
    for api, field, n in (
        ("openai-responses", "max_output_tokens", 16),
        ("anthropic", "max_tokens", 1),
    ):
        endpoint = Endpoint("p/i/k", "p", "i", "k", OPENAI, CANARY, "a", 20.0, api=api_named(api))
        assert json.loads(smallest_body(endpoint))[field] == n


def case(name, model="m"):
    return Case(0, name, f"test.py::{name}", "suite", model, 0, {}, 0)


def test_run_needs_all_lanes_of_the_models_of_its_cases(load):
    lanes = load(POOL + '[[provider.model]]\nname = "n"\n').lanes

    def needed(assignment, *cases):
        return [lane.lane_id for lane in needed_lanes(lanes, assignment, cases)]

    of_m = ["lab/a/key0", "lab/a/key1", "lab/b/key0", "lab/b/key1"]
    assert needed(Assignment(), case("c")) == of_m
    assert needed(Assignment(), case("c", "n")) == ["lab/n/key0", "lab/n/key1"]
    assert needed(Assignment()) == []
    bound = Assignment(groups=(Group("g", ("c",), lanes=("lab/b/key1", "lab/n/key0")),))
    assert needed(bound, case("c")) == ["lab/b/key1"]
    assert needed(bound, case("c"), case("d")) == of_m


@pytest.mark.parametrize(("kind", "word"), [(DAILY_QUOTA, "limited"), ("no_lane", "failed")])
def test_unsent_check_is_limited_by_a_daily_limit_and_failed_otherwise(load, kind, word):
    lane = load().lanes[0]
    endpoint = Endpoint(
        lane.lane_id, lane.provider, lane.instance, lane.key, OPENAI, CANARY, "a",
        timeout_s=20.0, api=api_named("openai"),
    )  # fmt: skip
    seen = Seen(lane, None, None, 100.0, unsent=InfraError(kind, "used up"))
    assert lane_answer(seen, endpoint, redact=str).word == word
