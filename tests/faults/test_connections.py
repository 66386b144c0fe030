"""Connections that end or stop too early: rows 1, 2 and 3 of the catalogue."""

from __future__ import annotations

import math

import pytest

from tests.faults.played import between, play
from tests.plugin.conftest import cases

BREAKS = ["reset_before", "reset_after", "reset_mid", "leave", "half_close"]
BROKEN = ("transport", "closed")
"""`closed` if the connection had served another request, and no byte of the answer came."""
STALLS = ["silence", "slow_head", "slow_body", "long_length_kept", "flood"]


@pytest.mark.slow
def test_request_on_a_broken_connection_is_sent_again_on_another(project):
    broken = [f"{fault}:1 it" for fault in BREAKS]
    played = play(project, between(broken), keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 5 * len(broken)}
    for prompt in broken:
        broke, then = played.classes(prompt)
        assert (broke in BROKEN, then) == (True, "ok")
        assert played.billed(prompt) == [True, False]
        first, second = project.server.log.of(prompt)
        assert first.connection != second.connection


@pytest.mark.slow
def test_connection_that_always_breaks_fails_only_its_case(project):
    broken = [f"{fault} it" for fault in BREAKS]
    played = play(project, between(broken), "--ultrapar-max-attempts=2", keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("infra", "transport"): len(broken), ("solved", None): 20}
    for prompt in broken:
        assert played.outcome(prompt) == ("infra", "transport")
        assert [one for one in played.classes(prompt) if one != "closed"] == ["transport"] * 2


@pytest.mark.slow
def test_request_on_a_broken_connection_is_not_retried_if_retries_are_off(project):
    broken = [f"{fault}:1 it" for fault in BREAKS]
    played = play(project, between(broken), "--ultrapar-max-attempts=1", keys=3)
    assert played.outcomes()["solved", None] == 20
    for prompt in broken:
        (broke,) = played.classes(prompt)
        assert broke in BROKEN
        assert played.outcome(prompt) == ("infra", broke)
        assert played.billed(prompt) == [True]


@pytest.mark.slow
def test_requests_that_stall_end_at_their_deadline_and_others_are_answered(project):
    stalled = [f"{fault} it" for fault in STALLS]
    others = [f"say {n}" for n in range(60)]
    played = play(project, [*stalled, *others], "--ultrapar-max-attempts=1", keys=3, timeout_s=15)
    assert played.result.ret == 0
    for prompt in stalled:
        assert played.outcome(prompt) == ("infra", "timeout")
        assert played.classes(prompt) == ["timeout"]
        assert played.billed(prompt) == [True]
    assert {played.outcome(prompt) for prompt in others} == {("solved", None)}
    # They did not wait for the stalled ones: all were answered while those hung.
    ends_s = [project.server.log.of(prompt)[0].end_s or math.inf for prompt in others]
    assert max(ends_s) < min(played.attempts[prompt][0]["t_end_s"] for prompt in stalled)


STALE = """
@prefetch
async def talk(llm, prompt) -> str:
    first = await llm.chat([{{"role": "user", "content": "stale " + prompt}}])
    return (await llm.chat([{{"role": "user", "content": prompt}}])).text

@pytest.mark.parametrize("prompt", {prompts!r})
def test_it(talk):
    assert talk.startswith("fine")
"""


def test_stale_connections_cost_at_most_one_retry_each(project):
    # A second turn on each of four connections, all of which the server closes next.
    prompts = [f"say fine {n}" for n in range(4)]
    played = play(project, prompts, suite=STALE, judged=False)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 4}
    n_stale = 0
    for prompt in prompts:
        found = [(a["turn"], a["outcome"]) for a in played.attempts[prompt]]
        # Requests after the first one that found its connection dead open a new one immediately.
        assert found in ([(0, "ok"), (1, "closed"), (1, "ok")], [(0, "ok"), (1, "ok")])
        n_stale += len(found) == 3
        arrivals = project.server.log.of(prompt)
        assert len({arrival.connection for arrival in arrivals}) == len(arrivals)
    assert n_stale >= 1


@pytest.mark.slow
def test_connections_outlive_the_time_that_tests_take_to_grade(project):
    """The server counts 16 connections; it was 69 when idle connections lived for half a second."""
    project.write_pool(seats=8)
    graded = "time.sleep(0.7 * (int(prompt[5:]) % 16 == 0))"
    project.suite("import time" + cases([f"work {n}" for n in range(160)], graded))
    assert project.run("-n2").ret == 0
    assert len({request.connection for request in project.server.requests}) <= 5 * 8
