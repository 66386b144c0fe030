"""TLS that cannot be trusted is refused before a byte of a request, with a clear error: row 19."""

from __future__ import annotations

import contextlib
import datetime
import ssl
import warnings

import certifi
import pytest
import trustme

from tests.faults.byte_faults import completion
from tests.faults.played import SUITE, Played, run
from tests.raw_server import RawServer, response

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority, tmp_path, monkeypatch) -> None:
    """Trust that authority in the run, as if certifi listed it."""
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(path)
    monkeypatch.setattr(certifi, "where", lambda: str(path))


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(tls)
    return tls


def tls_server(tls: ssl.SSLContext) -> RawServer:
    """A TLS server that sends the same completion to every request."""
    fine = response(completion("fine"))
    return RawServer(lambda peer, _: peer.send(fine), tls=tls)


def good(authority: trustme.CA) -> ssl.SSLContext:
    return serving(authority.issue_cert("127.0.0.1"))


def expired(authority: trustme.CA) -> ssl.SSLContext:
    end = LONG_AGO + datetime.timedelta(days=30)
    return serving(authority.issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=end))


def of_another_host(authority: trustme.CA) -> ssl.SSLContext:
    return serving(authority.issue_cert("api.example.org"))


def of_a_stranger(_: trustme.CA) -> ssl.SSLContext:
    return good(trustme.CA())


def of_old(authority: trustme.CA) -> ssl.SSLContext:
    tls = good(authority)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        tls.minimum_version = tls.maximum_version = ssl.TLSVersion.TLSv1
    tls.set_ciphers("ALL:@SECLEVEL=0")
    return tls


def go(
    project, prompts: list[str], *urls: str, options: tuple[str, ...] = (), **settings: object
) -> Played:
    listed = ", ".join(f'{{ name = "i{n}", base_url = "{url}" }}' for n, url in enumerate(urls))
    project.write_pool(instances=f"[{listed}]", timeout_s=1)
    project.suite(SUITE.format(prompts=prompts))
    return run(project, prompts, *options, judged=False, **settings)


@pytest.mark.usefixtures("trusted")
def test_valid_certificate_is_trusted(project, authority):
    with tls_server(good(authority)) as server:
        played = go(project, ["say fine"], server.base_url)
    assert played.outcomes() == {("solved", None): 1}
    assert len(server.requests) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("trusted")
def test_host_with_wrong_tls_gets_no_request_and_the_other_host_gets_all(project, authority):
    prompts = [f"say {n}" for n in range(30)]
    wrong = [expired, of_another_host, of_a_stranger, of_old]
    with contextlib.ExitStack() as stack:
        bad = [stack.enter_context(tls_server(one(authority))) for one in wrong]
        other = stack.enter_context(tls_server(good(authority)))
        played = go(project, prompts, *(one.base_url for one in bad), other.base_url)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 30}
    assert [one.requests for one in bad] == [[]] * len(wrong)
    assert len(other.requests) == 30
    failed = [a for found in played.attempts.values() for a in found if a["outcome"] != "ok"]
    assert {(a["instance"], a["status"], a["maybe_billed"]) for a in failed} == {
        (f"i{n}", None, False) for n in range(len(wrong))
    }


@pytest.mark.slow
def test_handshake_that_stalls_ends_at_the_requests_deadline(project):
    # A server without TLS waits for the end of a request, which never comes.
    url = project.server.base_url.replace("http:", "https:")
    played = go(project, ["say fine"], url, episode_timeout_s=2)
    assert {outcome for outcome, _ in played.outcomes()} == {"infra"}
    assert len(project.server.log) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("wrong", [expired, of_another_host, of_a_stranger])
def test_wrong_certificate_ends_the_run_and_is_named_if_there_is_no_other_host(
    project, authority, wrong
):
    with tls_server(wrong(authority)) as bad:
        played = go(project, ["say fine"], bad.base_url, episode_timeout_s=10)
    assert {outcome for outcome, _ in played.outcomes()} == {"infra"}
    assert bad.requests == []
    # A wrong certificate does not become right: the lane is removed.
    assert [(a["outcome"], a["maybe_billed"]) for a in played.attempts["say fine"]] == [
        ("tls", False)
    ]
    assert "certificate that failed verification" in " ".join(played.output.split())


@pytest.mark.slow
def test_handshake_that_stalls_costs_nothing(project):
    url = project.server.base_url.replace("http:", "https:")
    played = go(
        project, ["say fine"], url, options=("--ultrapar-max-attempts=1",), episode_timeout_s=3
    )
    assert [(a["outcome"], a["maybe_billed"]) for a in played.attempts["say fine"]] == [
        ("connect", False)
    ]
