"""Limits on tokens in `--ultrapar-plan`."""

from __future__ import annotations

import pytest

SUITE = """
@pytest.mark.ultrapar(expect={expect})
@pytest.mark.parametrize("prompt", [f"say {{n}}" for n in range(20)])
def test_it(answer): pass
"""
KNOWN = {"turns": 1, "tokens_in": 1000, "tokens_out": 500}


@pytest.fixture
def plan(project):
    def run(tpm: int, expect: dict[str, float]) -> pytest.RunResult:
        project.write_pool(key=f", tpm = {tpm}", model="latency_hint_s = 1")
        project.suite(SUITE.format(expect=expect))
        result = project.run("-n0", "--ultrapar-plan")
        assert project.server.prompts == []
        return result

    return run


def test_plan_simulates_the_limit_on_tokens(plan):
    result = plan(30_000, KNOWN)
    assert result.ret == 0
    # 19 x 1500 tokens at 500 per second and 0.2 % more, and the last answer.
    result.stdout.fnmatch_lines(
        [
            "p/key0 * 30000 tokens per minute * 60.0 s",
            "ultra <- * 58.1 s *",
            "WARNING: the lower bound ignores token limits (tpm of p/key0); *",
        ]
    )


def test_plan_warns_of_unknown_tokens(plan):
    result = plan(30_000, {"turns": 1})
    assert result.ret == 0
    said = "WARNING: the tokens of 20 of 20 cases are unknown and count as 0; *"
    result.stdout.fnmatch_lines([said])


def test_plan_refuses_requests_that_never_fit(plan):
    result = plan(1499, KNOWN)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [
            "ERROR: --ultrapar-plan: m: requests have 1,500 tokens on average, but p/key0 allows "
            "no request with more than 1,499 (tpm)"
        ]
    )
