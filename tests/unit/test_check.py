"""What a check says of lanes, of its cost, and which lanes a run needs; nothing is sent."""

from __future__ import annotations

import httpx
import pytest

from pytest_ultrapar.check.asking import Seen
from pytest_ultrapar.check.question import CHAT, MODELS
from pytest_ultrapar.check.report import (
    MOST_TOKENS_IN,
    cost,
    failures,
    lane_line,
    summary_lines,
)
from pytest_ultrapar.check.verdict import Verdict, judge
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.failure import Failure
from pytest_ultrapar.engine.http import Answer
from pytest_ultrapar.lanes.assignment import Assignment, Group
from pytest_ultrapar.lanes.failure_classes import CLASSES
from pytest_ultrapar.leading.lane_check import needed_lanes
from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides
from pytest_ultrapar.pool.proxy import Proxy
from pytest_ultrapar.pool.route import DEFAULT_TRUST, Route
from pytest_ultrapar.records import Case
from pytest_ultrapar.results.redact import Redactor

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
def load(tmp_path):
    def load(text=POOL):
        path = tmp_path / "pool.toml"
        path.write_text(text)
        return load_pool(path, environ={}, overrides=Overrides())

    return load


def answered(status, body, headers=()):
    return Answer(status, httpx.Headers(headers), body.encode(), 0.0)


def verdict_on(lane, said, *, question=CHAT, url=OPENAI, **fields) -> Verdict:
    """What is said of a lane of which that came: an answer, or a failure without one."""
    api = "azure-openai" if "deployments" in url else "openai"
    fields = {"timeout_s": 20.0, "api": api, **fields}
    endpoint = question.prepared(
        Endpoint(lane.lane_id, lane.provider, lane.instance, lane.key, url, CANARY, "a", **fields)
    )
    failure = question.read(said, endpoint, 0.5)
    seen = Seen(lane, failure, 0.5, said if isinstance(said, Answer) else None)
    return judge(seen, endpoint, "LAB_KEY_0", Redactor([CANARY]).text)


def completion(**message):
    return answered(200, httpx.Response(200, json={"choices": [message]}).text)


@pytest.mark.parametrize(
    "said",
    [
        completion(message={"content": "OK"}, finish_reason="stop"),
        # All of the one token went into reasoning, or into nothing that is shown.
        completion(message={"content": None}, finish_reason="length"),
        # A prompt that the provider does not like was read.
        answered(400, '{"error": {"message": "no", "code": "content_filter"}}'),
        answered(
            400,
            '{"error": {"message": "Could not finish the message because max_tokens or model '
            'output limit was reached. Please try again with higher max_tokens."}}',
        ),
    ],
)
def test_lane_that_answers_is_ok(load, said):
    verdict = verdict_on(load().lanes[0], said)
    assert (verdict.word, verdict.why, verdict.latency_s) == ("ok", "", 0.5)


@pytest.mark.parametrize(
    ("said", "word", "why"),
    [
        (
            answered(401, '{"error": {"message": "Incorrect API key provided"}}'),
            "failed",
            "key lab/key0 (environment LAB_KEY_0) was refused (401): Incorrect API key provided",
        ),
        (
            answered(403, '{"message": "not for you"}'),
            "failed",
            "key lab/key0 (environment LAB_KEY_0) may not use a (403): not for you",
        ),
        (
            answered(404, '{"error": {"message": "you do not have access to a"}}'),
            "failed",
            "key lab/key0 (environment LAB_KEY_0) may not use a (404): you do not have access to a",
        ),
        (
            answered(404, "<html>nginx</html>"),
            "failed",
            f"the model a was not found at {OPENAI} (404): its name or base_url is wrong: "
            "<html>nginx</html>",
        ),
        (
            answered(402, "{}"),
            "failed",
            "key lab/key0 (environment LAB_KEY_0) has no quota left (402): {}",
        ),
        (
            answered(429, '{"error": {"message": "slow down"}}', [("retry-after", "20")]),
            "limited",
            "it answers, but is rate limited right now (429): slow down (come back in 20 s)",
        ),
        (answered(503, "busy"), "failed", "the server failed (503): busy"),
        (
            answered(
                400, '{"error": {"message": "Unsupported parameter: \'max_tokens\'. Use another."}}'
            ),
            "failed",
            "the server calls the smallest request malformed (400) (its `parameters` in the pool "
            "say under which name max_tokens is sent): Unsupported parameter: 'max_tokens'. Use "
            "another.",
        ),
        (
            answered(200, "<html>"),
            "failed",
            "the answer cannot be read (200): the answer is no chat completion: *",
        ),
        (
            answered(302, ""),
            "failed",
            "the server redirects elsewhere (302), which is not followed: base_url is wrong",
        ),
        (
            Failure("timeout", "no answer within 20 s", maybe_billed=True),
            "failed",
            "no answer within 20 s",
        ),
        (
            Failure("connect", "cannot connect: Connection refused", is_wordless=True),
            "failed",
            "nothing listens at api.example.com: the connection was refused",
        ),
        (
            Failure("connect", "cannot connect: ConnectError: no such host"),
            "failed",
            "api.example.com cannot be reached: no such host",
        ),
        (
            Failure("transport", "ReadError: reset"),
            "failed",
            "the connection to api.example.com broke before there was an answer: reset",
        ),
        (
            Failure("tls", "certificate not trusted: self-signed"),
            "failed",
            "the certificate of api.example.com does not verify (a private CA goes into ca_file): "
            "self-signed",
        ),
    ],
)
def test_lane_that_does_not_answer_says_what_failed_and_why(load, said, word, why):
    verdict = verdict_on(load().lanes[0], said)
    assert verdict.word == word
    if why.endswith("*"):
        assert verdict.why.startswith(why[:-1])
    else:
        assert verdict.why == why


def test_azure_deployment_that_is_not_there_is_called_one(load):
    verdict = verdict_on(load().lanes[0], answered(404, NOT_FOUND), url=AZURE)
    assert verdict.why == (
        "the deployment a was not found at https://box.example.com/openai/deployments/a/chat/"
        "completions (404): its name or base_url or api_version is wrong: It does not exist"
    )


def test_refused_connection_at_a_proxy_is_not_called_the_servers(load):
    failure = Failure("connect", "cannot connect: refused", is_wordless=True)
    route = Route(DEFAULT_TRUST, Proxy("http://proxy.example.com:1", {}))
    verdict = verdict_on(load().lanes[0], failure, route=route)
    assert verdict.cause == "api.example.com cannot be reached through the proxy"


@pytest.mark.parametrize("outcome", [*CLASSES])
def test_every_class_of_failure_has_words(load, outcome):
    if outcome != "refused":
        verdict = verdict_on(load().lanes[0], Failure(outcome, "x"))
        assert verdict.word == ("limited" if outcome == "rate" else "failed")
        assert verdict.cause
        assert "{" not in verdict.cause


def test_secret_and_control_characters_of_an_answer_are_not_shown(load):
    body = f'{{"error": {{"message": "wrong key {CANARY}\\u001b[2J\\nnew line"}}}}'
    verdict = verdict_on(load().lanes[0], answered(401, body))
    assert verdict.said == "wrong key ***\\x1b[2J new line"
    long = verdict_on(load().lanes[0], answered(500, "x" * 100_000))
    assert len(long.why) < 300


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, '{"data": [{"id": "other"}, {"id": "a"}]}', ""),
        (
            200,
            '{"data": [{"id": "b"}, {"id": "c"}]}',
            f"a is not in the list of models at {OPENAI}: the server lists b, c",
        ),
        (
            404,
            "no such page",
            f"there is no list of models at {OPENAI} (404): no such page",
        ),
        (200, '{"data": 3}', "the answer cannot be read (200): the answer is no list of models"),
        (
            401,
            '{"detail": "wrong key"}',
            "key lab/key0 (environment LAB_KEY_0) was refused (401): wrong key",
        ),
    ],
)
def test_list_of_models_is_read_as_one(load, status, body, why):
    verdict = verdict_on(load().lanes[0], answered(status, body), question=MODELS)
    assert verdict.why == why


def test_lists_of_azure_say_nothing_of_deployments(load):
    said = answered(200, '{"data": [{"id": "gpt-4o"}]}')
    assert verdict_on(load().lanes[0], said, question=MODELS, url=AZURE).word == "ok"


def test_lines_of_lanes_are_columns(load):
    lanes = load().lanes
    assert lane_line(Verdict(lanes[0], "ok", 0.5), lanes) == "ok       lab/a/key0    0.50 s"
    failed = Verdict(lanes[1], "failed", 1.25, "it failed", "as it said")
    assert lane_line(failed, lanes) == "failed   lab/a/key1    1.25 s  it failed: as it said"
    unsent = Verdict(lanes[1], "failed", None, "nothing could be sent: why")
    assert lane_line(unsent, lanes).startswith("failed   lab/a/key1           ")


def test_summary_tells_together_what_failed_for_the_same_reason(load):
    pool = load()
    a0, a1, b0, b1 = pool.lanes
    verdicts = [
        Verdict(a0, "ok", 0.5),
        Verdict(a1, "failed", 0.1, "key lab/key1 was refused (401)", "no"),
        Verdict(b0, "limited", 0.1, "it answers, but is rate limited right now (429)"),
        Verdict(b1, "failed", 0.1, "key lab/key1 was refused (401)", "no, request 17"),
    ]
    assert list(summary_lines(pool, verdicts, CHAT)) == [
        "1 of 4 lanes answers (in 0.50 s, the slowest in 0.50 s), 1 answers that this is too much "
        "now, 2 do not answer",
        "failed: lab/a/key1, lab/b/key1: key lab/key1 was refused (401)",
        "limited: lab/b/key0: it answers, but is rate limited right now (429)",
        "cost: not known, there are no prices in the pool",
    ]
    assert next(failures(verdicts[1:2])).endswith("was refused (401): no")


def test_summary_names_what_is_not_known_and_models_without_a_lane(load):
    pool = load()
    dead = [Verdict(lane, "failed", 0.1, "it failed") for lane in pool.lanes]
    assert "no lane answers for the model m" in list(summary_lines(pool, dead, CHAT))
    lines = list(summary_lines(pool, dead[:2], CHAT))
    assert "nothing is known of lab/b/key0, lab/b/key1" in lines
    assert not [line for line in lines if line.startswith("no lane answers")]


def test_cost_is_an_upper_bound_by_the_pools_prices(load):
    assert cost(load(), CHAT) == "not known, there are no prices in the pool"
    priced = POOL + "price_per_mtok_in = 1000\nprice_per_mtok_out = 6000\n"
    whole = 4 * (MOST_TOKENS_IN * 1000 + 6000) / 1e6
    bound = f"({MOST_TOKENS_IN} tokens in and 1 out for each request)"
    assert cost(load(priced), CHAT) == (
        f"at most {whole:.2g} in the currency of the pool's prices {bound}"
    )
    other = priced + '[[provider.model]]\nname = "n"\n'
    assert cost(load(other), CHAT).endswith(f"{bound}, without n, which have no price")
    unbounded = priced + "parameters = { max_tokens = false }\n"
    assert "without m, whose answers have no bound" in cost(load(unbounded), CHAT)
    assert cost(load(priced), MODELS) == "none, lists of models are free"


def case(name, model="m"):
    return Case(0, name, f"test.py::{name}", "suite", model, 0, {}, 0)


def test_run_needs_all_lanes_of_the_models_that_its_cases_ask(load):
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
