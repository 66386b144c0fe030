"""Unknown host names: row 18 of the catalogue."""

from __future__ import annotations

import pytest

from tests.faults.test_tls import go


@pytest.mark.slow
def test_unknown_host_costs_no_case_while_another_host_works(project):
    # No name below `.invalid` can be registered (RFC 2606).
    prompts = [f"say {n}" for n in range(30)]
    played = go(project, prompts, "https://no-such-host.invalid/v1", project.server.base_url)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 30}
    failed = [a for found in played.attempts.values() for a in found if a["outcome"] != "ok"]
    assert {(a["instance"], a["outcome"], a["maybe_billed"]) for a in failed} == {
        ("i0", "no_host", False)
    }


@pytest.mark.slow
def test_unknown_host_ends_the_run_if_there_is_no_other(project):
    played = go(project, ["say fine"], "https://no-such-host.invalid/v1", episode_timeout_s=10)
    assert {outcome for outcome, _ in played.outcomes()} == {"infra"}
    assert {a["outcome"] for a in played.attempts["say fine"]} == {"no_host"}
