"""Retries: which requests, on which lane, how often and when, judged by the server's log."""

from __future__ import annotations

import re
from threading import Event, Thread

import pytest

from pytest_ultrapar.store.manifest import read_manifest
from tests.faults.byte_faults import refuse
from tests.plugin.conftest import CANARY, cases
from tests.scripted_server import ScriptedServer, refusing


def test_one_attempt_means_no_retries(project):
    prompts = [
        "once 429 a",
        "once 500 b",
        "once 503 c",
        "once 529 d",
        "once 408 e",
        "wait 0.01 | f",
        "drop",
        "garbage",
        "say fine",
    ]
    project.suite(cases(prompts))
    assert project.run("-n0", "--ultrapar-max-attempts", "1", "--ultrapar-coverage", "0").ret == 0
    assert sorted(project.server.prompts) == sorted(prompts)
    assert sum(project.kinds().values()) == len(prompts)
    assert project.kinds()["solved", None] == 1


def test_failed_requests_move_to_the_other_instance_of_the_model(project):
    project.write_pool(instances='["m", "m2"]')
    project.server.weather = refusing(500, "m2")
    project.suite(cases(30))
    assert project.run("-n0").ret == 0
    assert project.kinds() == {("solved", None): 30}
    attempts = project.rows("attempts")
    failed = [row for row in attempts if row["outcome"] == "overload"]
    assert failed
    assert {row["instance"] for row in failed} == {"m2"}
    # No failed request was sent to the same instance again.
    assert len({row["case_id"] for row in failed}) == len(failed)
    assert len(attempts) == len(project.server.prompts) == 30 + len(failed)
    text = project.report.str()
    n = len(failed)
    said = rf"lane p/m2/key0.*{n} failed requests? \({n} overload\), {n} retried on other lanes"
    assert re.search(said, text)
    assert "lane p/m/key0" not in text


@pytest.mark.slow
def test_server_that_always_fails_ends_the_run_within_the_retry_budget(project, workers):
    project.server.weather = lambda _: refuse(503)
    project.suite(cases(40))
    result = project.run(
        workers, "--ultrapar-max-attempts", "50", "--ultrapar-episode-timeout", "3"
    )
    assert result.ret == 1
    assert sum(project.kinds().values()) == 40
    assert {outcome for outcome, _ in project.kinds()} == {"infra"}
    # Four seats at first, then the probes of the circuit breaker.
    assert 5 <= len(project.server.prompts) <= 20
    lane = read_manifest(project.directory).lanes[0]
    assert (lane.state, lane.n_opened) == ("out", 1)
    project.report.fnmatch_lines(
        [
            "lane p/m/key0 failed without an answer * times in a row over *; "
            "circuit breaker opened once*"
        ]
    )


@pytest.mark.slow
def test_server_that_dies_during_a_run_gets_few_requests(project):
    project.server.weather = lambda asked: refuse(503) if asked.number > 20 else None
    project.suite(cases(60))
    options = ("--ultrapar-rate-mode=adaptive", "--ultrapar-episode-timeout=12")
    assert project.run("-n0", *options).ret == 1
    answered = [one for one in project.server.log.requests if one.status == 200]
    assert project.kinds()["solved", None] == len(answered) >= 20
    assert {outcome for outcome, _ in project.kinds()} == {"solved", "infra"}
    # A fifth more and ten, and few from then on.
    assert len(project.server.prompts) <= 1.2 * 60 + 10 + 2


@pytest.mark.slow
def test_retries_beyond_the_budget_wait_and_no_case_is_lost(project):
    # A third of the requests fails at first, with answers between, so that no circuit breaker
    # opens.
    project.suite(
        """
PROMPTS = [f"{words} {n}" for n in range(45) for words in ("once 500", "say", "say again")]

@pytest.mark.parametrize("prompt", PROMPTS)
def test_it(answer): pass
"""
    )
    assert project.run("-n0").ret == 0
    assert set(project.kinds()) == {("solved", None)}
    # Each of them was sent exactly twice, although the budget was 37 retries.
    assert len(project.server.prompts) == 135 + 45


def test_refusal_of_one_request_ends_its_case_but_not_its_lane(project):
    said = {
        "say long": refuse(404, message="It will not fit."),
        "say harm": refuse(403, message="Your input was flagged for x."),
        "say much": refuse(429, b"retry-after: 9", message="Limit 30,000, Requested ~41,000"),
        "say away": refuse(307, b"location: /v2/?key=secret"),
    }
    project.server.weather = lambda asked: said.get(asked.prompt)
    project.write_pool(provider='patterns = { context_length = ["will not FIT"] }')
    project.suite(cases([*said, *[f"say {n}" for n in range(20)]]))
    project.run("-n0", "--ultrapar-coverage", "0")
    found = {row["param.prompt"]: (row["outcome"], row["kind"]) for row in project.rows()}
    refused = [("unsolved", "context_length"), ("unsolved", "content_filter")]
    failed = [("infra", "too_large"), ("infra", "malformed")]
    assert [found[prompt] for prompt in said] == refused + failed
    assert project.kinds()["solved", None] == 20
    assert len(project.server.prompts) == 24
    text = " ".join(project.report.str().split())
    assert "the server redirects to /v2/?..., but redirects are not followed" in text
    assert "paused" not in text


def test_pauses_of_lanes_are_stored_with_their_times(project):
    project.suite(cases(["wait 0.3 | fine"]))
    project.run("-n0")
    (pause,) = project.rows("pauses")
    refused, answered = project.rows("attempts")
    assert (pause["provider"], pause["instance"], pause["key"]) == ("p", "m", "key0")
    assert pause["cause"] == refused["outcome"] == "rate"
    assert refused["t_end_s"] <= pause["t_s"] < pause["t_end_s"] <= answered["t_send_s"]
    assert pause["t_end_s"] - pause["t_s"] >= 0.3


@pytest.mark.slow
def test_used_up_daily_quota_removes_its_key_once(project):
    words = "Rate limit reached on requests per day (RPD): Limit 200. Please try again in 2h0m0s."
    project.write_pool(keys=2)
    project.server.weather = refusing(429, f"{CANARY}-1", message=words)
    project.suite(cases(40))
    assert project.run("-n0").ret == 0
    assert project.kinds() == {("solved", None): 40}
    seats = 4
    assert project.server.tokens.count(f"{CANARY}-1") <= 3 + seats
    assert {row["outcome"] for row in project.rows("attempts")} == {"ok", "daily_quota"}
    said = "key p/key1 (environment TEST_KEY_1) has used up its daily quota for m"
    assert said in project.report.str()


@pytest.mark.slow
def test_requests_that_may_have_been_billed_are_counted_in_the_summary(project):
    project.suite(cases(["garbage", "say fine"]))
    assert project.run("-n0", "--ultrapar-coverage", "0").ret == 0
    assert project.server.prompts.count("garbage") == 2
    project.report.fnmatch_lines(["2 requests got no answer but may have been billed"])


@pytest.mark.slow
def test_restarted_server_costs_neither_case_nor_lane(project):
    first = ScriptedServer()
    first.start()
    project.write_pool(base_url=first.base_url, key=", qps = 20")
    project.suite(cases(60))
    again: list[ScriptedServer] = []

    def start_again() -> None:
        assert first.wait_for(lambda prompts: len(prompts) >= 15)
        first.stop()
        # No server listens for that long: more than five refused connections in a row.
        Event().wait(6.0)
        again.append(ScriptedServer(port=first.port))
        again[0].start()

    restart = Thread(target=start_again)
    restart.start()
    result = project.run("-n0")
    restart.join()
    again[0].stop()
    assert result.ret == 0
    assert project.kinds() == {("solved", None): 60}
    assert len(again[0].prompts) >= 40
    lane = read_manifest(project.directory).lanes[0]
    assert lane.state == "up"
    assert lane.outcomes["congestion"] >= 1
    # A missing server says nothing about a rate.
    assert lane.estimated is None or lane.estimated.qps is None
    project.report.fnmatch_lines(["lane p/m/key0: *failed request* (* congestion*"])
