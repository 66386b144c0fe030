"""The number and place of retries: rows 4, 7 and 8 of the catalogue and the table of failures."""

from __future__ import annotations

import pytest

from tests.faults.byte_faults import FAULTS, after, refuse
from tests.faults.played import KEY_NAMES, SEATS, SUITE, play

pytestmark = pytest.mark.slow

BURST_S = 3.0


@pytest.mark.parametrize("fault", ["short_json", "nested"])
def test_unreadable_answer_is_retried_once(project, fault):
    played = play(project, [f"{fault} it", "say fine"])
    assert played.outcome(f"{fault} it") == ("infra", "malformed")
    assert played.classes(f"{fault} it") == ["malformed"] * 2
    assert played.outcome("say fine") == ("solved", None)


@pytest.mark.parametrize("fault", ["silence", "slow_body"])
def test_missing_answer_is_retried_once(project, fault):
    played = play(project, [f"{fault} it"], timeout_s=0.4)
    assert played.outcome(f"{fault} it") == ("infra", "timeout")
    assert played.classes(f"{fault} it") == ["timeout"] * 2


@pytest.mark.parametrize("fault", ["reset_before", "server_error", "short_json"])
def test_lane_that_always_fails_costs_no_case_while_others_work(project, fault):
    def weather(asked):
        return FAULTS[fault] if KEY_NAMES[asked.token] == "key0" else None

    project.server.weather = weather
    project.server.faults["work"] = after(0.02)
    prompts = [f"work {n}" for n in range(60)]
    played = play(project, prompts, keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 60}
    failed = [a for found in played.attempts.values() for a in found if a["outcome"] != "ok"]
    assert {a["key"] for a in failed} == {"key0"}


def test_key_that_may_not_use_a_model_is_removed_for_that_model(project):
    forbidden = refuse(403)
    project.server.weather = lambda asked: (
        forbidden if (KEY_NAMES[asked.token], asked.model) == ("key1", "m") else None
    )
    project.server.faults["work"] = after(0.02)
    prompts = [f"work {n}" for n in range(60)]
    project.write_pool(keys=3, models=("m", "n"))
    project.suite(SUITE.format(prompts=prompts))
    assert project.run("-n0").ret == 0
    assert set(project.outcomes().values()) == {"solved"}
    failed = [a for a in project.rows("attempts") if a["outcome"] != "ok"]
    assert 1 <= len(failed) <= SEATS
    assert {(a["key"], a["instance"], a["outcome"]) for a in failed} == {("key1", "m", "forbidden")}
    assert {seen.model for seen in project.server.log.requests if seen.key == "key1"} == {"m", "n"}


def test_burst_of_503_is_amplified_by_less_than_a_fifth(project):
    unavailable = refuse(503)
    project.server.weather = lambda asked: unavailable if asked.t_s < BURST_S else None
    project.server.faults["work"] = after(0.01)
    n = 400
    played = play(project, [f"work {number}" for number in range(n)], keys=3, episode_timeout_s=40)
    assert {outcome for outcome, _ in played.outcomes()} <= {"solved", "infra"}
    assert len(project.server.log) / n <= 1.2
    # The burst was short: most cases survive it.
    assert played.outcomes()["solved", None] >= 0.8 * n


def test_burst_of_503_with_retry_after_costs_no_case(project):
    unavailable = refuse(503, b"retry-after: 1")
    project.server.weather = lambda asked: unavailable if asked.t_s < BURST_S else None
    project.server.faults["work"] = after(0.01)
    n = 400
    played = play(project, [f"work {number}" for number in range(n)], keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): n}
    assert len(project.server.log) / n <= 1.2
