"""Suites of odd shapes and names: row 22 of the catalogue."""

from __future__ import annotations

import pytest

from tests.faults.byte_faults import refuse
from tests.faults.played import SUITE, play, run
from tests.plugin.conftest import CANARY, said_by

ODD = [
    "say 答え",
    "say \u202eabc",
    "say a\u0301",
    "say 👩‍💻 [x] :: /",
    "say \\u0000",
    "say " + "x" * 5000,
]


def test_prompts_in_different_scripts_are_different_cases(project):
    played = play(project, ODD)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): len(ODD)}
    prompt_of = {row["case_id"]: prompt for prompt, row in played.rows.items()}
    said = {
        prompt_of[row["case_id"]]: row["content"]
        for row in project.rows("transcripts")
        if row["role"] == "assistant"
    }
    assert said == {prompt: prompt.removeprefix("say ") for prompt in ODD}


def test_one_case_is_a_run(project):
    played = play(project, ["say fine"])
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 1}


@pytest.mark.parametrize("suite", ["", SUITE.format(prompts=["say a"])], ids=["none", "deselected"])
def test_suite_without_cases_sends_nothing(project, workers, suite):
    project.suite(suite)
    result = project.run(workers, "-k", "nothing_of_that_name")
    said_by(result, 5)
    assert len(project.server.log) == 0


def test_cases_without_a_lane_are_refused_before_any_request(project, workers):
    project.suite(
        """
@pytest.mark.ultrapar(models=["another"])
@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_it(answer): pass
"""
    )
    assert "another" in project.refusal(project.run(workers))
    assert len(project.server.log) == 0


@pytest.mark.slow
def test_thousands_of_cases_without_a_server_end_soon(project):
    prompts = [f"work {number}" for number in range(2_000)]
    refused = refuse(401)
    project.server.weather = lambda _: refused
    project.write_pool(keys=3)
    project.suite(SUITE.format(prompts=prompts))
    # `run` bounds the time: 60 s and its grace period; quadratic work would take many times that.
    played = run(project, prompts, episode_timeout_s=60)
    assert played.outcomes() == {("infra", "no_lane"): 2_000}
    # The requests in flight, and a probe for each key.
    assert len(project.server.log) <= 12 + 3
    assert CANARY not in played.output
