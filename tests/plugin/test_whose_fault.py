"""A whole run distinguishes one refused request from dead keys and missing models."""

from __future__ import annotations

import json

import pytest

from tests.faults.byte_faults import bytes_, refuse
from tests.plugin.conftest import CANARY, cases
from tests.raw_server import response
from tests.scripted_server import refusing

PAGE = b"<html><title>Attention Required!</title>You have been blocked</html>"
BAD = "bad one"
PROMPTS = [f"say {n}" for n in range(29)]
PROMPTS.insert(11, BAD)


def error(status, message, **more):
    body = json.dumps({"error": {"message": message, **more}}).encode()
    return bytes_(response(body, status=status))


REFUSED = {
    "page": (
        bytes_(response(PAGE, b"content-type: text/html", status=b"403 Forbidden")),
        "blocked",
    ),
    "upstream": (
        error(b"403 Forbidden", "Provider returned error", metadata={"provider_name": "Alpha"}),
        "Provider returned error",
    ),
    "missing": (error(b"404 Not Found", "file-17 was not found"), "file-17 was not found"),
    "unauthorized": (error(b"401 Unauthorized", "No auth for this tool"), "No auth for this tool"),
}


def upstream(status, number, **said):
    """OpenRouter's form of an error of the provider behind it."""
    metadata = {"raw": json.dumps({"error": said}), "provider_name": "Alpha"}
    return error(status, "Provider returned error", code=number, metadata=metadata)


# By a word of the prompt: the refusal of one request of many, and its source.
SEEN = {
    # OpenHands/OpenHands#4480, run-llama/llama_index#16796
    "cloudflare": bytes_(response(PAGE, b"content-type: text/html", status=b"403 Forbidden")),
    # aws-samples/sample-kolya-br-proxy#38
    "firewall": bytes_(response(b"<h1>403 Forbidden</h1>", status=b"403 Forbidden")),
    # OpenRouterTeam/ai-sdk-provider#24
    "key": upstream(
        b"401 Unauthorized", 401, type="authentication_error", message="invalid x-api-key"
    ),
    # anomalyco/opencode#45755
    "region": upstream(
        b"403 Forbidden",
        403,
        code="unsupported_country_region_territory",
        message="Country, region, or territory not supported",
    ),
    # NousResearch/hermes-agent#23411
    "image": error(b"404 Not Found", "No endpoints found that support image input", code=404),
    # the same error of the provider's own account, as OpenRouter passes it on
    "account": upstream(b"402 Payment Required", 402, message="Insufficient Balance"),
    "plan": upstream(b"429 Too Many Requests", 429, code="insufficient_quota", message="no"),
    # can1357/oh-my-pi#9569: a request of 1,024 tokens was served at the same time
    "afford": error(
        b"402 Payment Required",
        "This request requires more credits, or fewer max_tokens. You requested up to 65536 "
        "tokens, but can only afford 30104.",
        code=402,
    ),
    # vanderschaarlab/climb#1: a request above all tokens of a minute is told to wait for a day
    "tokens": error(
        b"429 Too Many Requests",
        "Requests to the ChatCompletions_Create Operation have exceeded token rate limit of your "
        "current OpenAI S0 pricing tier. Please retry after 86400 seconds.",
        code="429",
    ),
}


@pytest.mark.parametrize("keys", [1, 3])
def test_each_of_these_refusals_fails_only_its_own_case(project, keys, workers):
    project.write_pool(keys=keys)
    project.server.faults |= SEEN
    prompts = [f"say {n}" for n in range(60)]
    for n, word in enumerate(SEEN):
        prompts.insert(5 + 6 * n, f"{word} it")
    project.suite(cases(prompts))
    project.run(workers)
    expected = {("solved", None): 60, ("infra", "refusal_of_request"): len(SEEN)}
    assert project.kinds() == expected
    assert set(project.reasons().values()) == {""}
    sent = project.server.prompts
    assert {sent.count(f"{word} it") for word in SEEN} <= {1, min(keys, 2)}


@pytest.mark.parametrize("keys", [1, 3])
@pytest.mark.parametrize("name", REFUSED)
def test_one_refused_request_fails_only_its_own_case(project, name, keys, workers):
    fault, words = REFUSED[name]
    project.write_pool(keys=keys)
    project.server.faults["bad"] = fault
    project.suite(cases(PROMPTS))
    project.run(workers)
    assert project.kinds() == {("solved", None): 29, ("infra", "refusal_of_request"): 1}
    (row,) = [row for row in project.rows() if row["outcome"] == "infra"]
    assert BAD in row["nodeid"]
    assert words in row["error"]
    assert set(project.reasons().values()) == {""}
    # Once with another key if there is one.
    assert project.server.prompts.count(BAD) == min(keys, 2)


@pytest.mark.parametrize("first", [BAD, "say 3"])
def test_one_false_refusal_costs_nothing(project, first, workers):
    project.write_pool(keys=3)
    false = error(b"401 Unauthorized", "a node that does not know the key yet")

    def weather(asked):
        return false if asked.prompt == first and asked.nth == 1 else None

    project.server.weather = weather
    project.suite(cases(PROMPTS))
    assert project.run(workers).ret == 0
    assert project.kinds() == {("solved", None): 30}
    assert set(project.reasons().values()) == {""}


def test_refusal_of_the_content_is_a_result_immediately(project, workers):
    project.write_pool(keys=3)
    project.server.faults["bad"] = error(
        b"403 Forbidden",
        "The input was flagged",
        metadata={"reasons": ["violence"], "flagged_input": "..."},
    )
    project.suite(cases(PROMPTS))
    project.run(workers)
    assert project.kinds() == {("solved", None): 29, ("unsolved", "content_filter"): 1}
    assert project.server.prompts.count(BAD) == 1


@pytest.mark.parametrize("status", [401, 402, 403])
def test_dead_key_is_removed_after_few_refusals_and_costs_no_case(project, status, workers):
    project.write_pool(keys=3)
    project.server.weather = refusing(status, f"{CANARY}-1")
    project.suite(cases(60))
    result = project.run(workers)
    assert result.ret == 0
    assert project.kinds() == {("solved", None): 60}
    seats = 4
    assert project.server.tokens.count(f"{CANARY}-1") <= 3 + seats
    assert project.reasons()["p/m/key1"]
    assert project.reasons()["p/m/key1"] in project.report.str()


def test_key_that_dies_during_a_run_is_removed_after_three_refusals(project, workers):
    project.write_pool(keys=3, seats=1)
    dead = refusing(401, f"{CANARY}-1")
    refused = []

    def weather(asked):
        fault = dead(asked) if len(project.server.log.requests) > 20 else None
        refused.extend([asked] if fault else [])
        return fault

    project.server.weather = weather
    project.suite(cases(60))
    assert project.run(workers).ret == 0
    assert project.kinds() == {("solved", None): 60}
    assert len(refused) == 3
    assert project.reasons()["p/m/key1"]


def run_that_no_instance_serves(project, workers, why):
    """The terminal's words about 30 cases on a server that does not serve their model."""
    project.suite(cases(30))
    result = project.run(workers)
    assert result.ret == 1
    assert project.kinds() == {("infra", "no_lane"): 30}
    seats = 12
    assert len(project.server.prompts) <= 3 + seats
    where = f"instance p/m (127.0.0.1:{project.server.port}/v1)"
    assert f"{where} {why}" in project.report.str()
    return " ".join(result.stdout.str().split())


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "The model `m` does not exist."),
        (400, "m is not a valid model ID"),
        (422, "Model 'm' not found"),
    ],
)
def test_missing_model_is_reported_once(project, status, message, workers):
    project.write_pool(keys=3)
    project.server.weather = refusing(status, "m", message=message)
    why = "was not found (404), or does not serve m"
    said = run_that_no_instance_serves(project, workers, why)
    # The server's own words, on the terminal and once.
    assert said.count(message) == 1
    assert any(message in row["error"] for row in project.rows())


def test_run_without_refusals_sends_no_extra_request(project, workers):
    project.write_pool(keys=3)
    project.suite(cases(30))
    assert project.run(workers).ret == 0
    assert len(project.server.prompts) == 30


CHECK = "Reply with OK."
NOT_HERE = "Chat completions are switched off for this deployment (request 8f3a{})"


def refusing_all(status, message, *, but_checks=None):
    """Weather: refuse everything, but answer a check, or refuse it in the words `but_checks`."""

    def weather(asked):
        words = message if asked.prompt != CHECK else but_checks
        return refuse(status, message=words.format(asked.number)) if words else None

    return weather


@pytest.mark.parametrize("status", [400, 422, 501])
@pytest.mark.cpu_s(2)
def test_refusal_of_all_first_requests_is_reported_once(project, status, workers):
    project.write_pool(keys=3)
    project.server.weather = refusing_all(status, NOT_HERE, but_checks=NOT_HERE)
    why = "refuses even the shortest request for m"
    said = run_that_no_instance_serves(project, workers, why)
    assert said.count("are switched off for this") == 1
    # Once the server is fixed, the same command sends all of them.
    project.server.weather = lambda _: None
    project.finish(30)


@pytest.mark.parametrize(
    ("status", "check"),
    [(400, None), (501, None), (400, "no"), (400, "max_tokens: must be 16 or more")],
)
def test_invalid_requests_of_a_suite_are_errors_of_the_suite(project, status, check, workers):
    project.write_pool(keys=3)
    words = check if check and "max" in check else "temperature: not for this model"
    project.server.weather = refusing_all(status, words, but_checks=check)
    project.suite(cases(30))
    project.run(workers)
    assert project.kinds() == {("error", "bad_request"): 30}
    assert all(words in row["error"] for row in project.rows())
    assert (project.directory / "report.md").read_text().count(words) == 1
    assert set(project.reasons().values()) == {""}
    sent = project.server.prompts
    # A check for each lane at most, and no case twice.
    assert len(sent) <= 30 + 3
    assert len(set(sent)) == 31


def test_instance_that_refuses_all_requests_costs_no_case_if_another_serves(project, workers):
    project.write_pool(instances='["m", "deaf"]')
    project.server.weather = refusing(400, "deaf", message="not switched on")
    project.suite(cases(30))
    assert project.run(workers).ret == 0
    assert project.kinds() == {("solved", None): 30}
    assert "deaf" in "".join(project.reasons())
