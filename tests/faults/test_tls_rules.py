"""What a failed handshake counts as: row 19 and the table of failures."""

from __future__ import annotations

import pytest

from tests.faults.test_tls import (
    authority,
    expired,
    go,
    of_a_stranger,
    of_another_host,
    tls_server,
    trusted,
)

__all__ = ["authority", "trusted"]


@pytest.mark.slow
@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("wrong", [expired, of_another_host, of_a_stranger])
def test_wrong_certificate_alone_ends_the_run_and_is_named(project, authority, wrong):
    with tls_server(wrong(authority)) as bad:
        played = go(project, ["say fine"], bad.base_url, episode_timeout_s=10)
    assert {outcome for outcome, _ in played.outcomes()} == {"infra"}
    assert bad.requests == []
    # It will not become right: never again on that lane.
    assert [(a["outcome"], a["maybe_billed"]) for a in played.attempts["say fine"]] == [
        ("tls", False)
    ]
    assert "certificate that failed verification" in played.output


@pytest.mark.slow
def test_handshake_that_stalls_has_cost_nothing(project):
    url = project.server.base_url.replace("http:", "https:")
    played = go(
        project, ["say fine"], url, options=("--ultrapar-max-attempts=1",), episode_timeout_s=3
    )
    assert [(a["outcome"], a["maybe_billed"]) for a in played.attempts["say fine"]] == [
        ("connect", False)
    ]
