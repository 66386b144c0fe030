"""Private authorities, client certificates and proxies, with real ones on the loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

import pytest
import trustme

from pytest_ultrapar.broker.adaptive.server_load import ServerLoad, ask_load
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.model import Network
from pytest_ultrapar.pool.network import route_to
from pytest_ultrapar.store.manifest import read_manifest
from tests.faults.played import SUITE, Played, run
from tests.faults.test_tls import good, serving
from tests.faults.test_tls import tls_server as serving_tls
from tests.raw_server import BUSY, Peer, RawServer, Request

PASSWORD = "pass/word-canary:7d1f"
USER_INFO = f"someone:{PASSWORD}"
QUOTED = f"someone:{quote(PASSWORD, safe='')}"
CA = 'ca_file = "certs/ca.pem"'


@dataclass
class Tunnels:
    """A proxy that opens tunnels.

    Attributes:
        user_info: The `user:password` that it requires; None: it requires none.
        tunnels: `host:port` of each tunnel that it opened.
        refused: The number of refused tunnels.
    """

    user_info: str | None
    port: int = 0
    tunnels: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, peer: Peer, request: Request) -> None:
        basic = base64.b64encode((self.user_info or "").encode()).decode()
        told = request.headers.get("proxy-authorization")
        if request.method != "CONNECT" or (self.user_info and told != f"Basic {basic}"):
            self.refused += 1
            await peer.send(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            peer.close()
            return
        host, _, port = request.target.rpartition(":")
        there, out = await asyncio.open_connection(host, int(port))
        self.tunnels.append(request.target)
        await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with contextlib.closing(out):
            await asyncio.gather(_pump(peer.reader, out), _pump(there, peer.writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


@contextlib.contextmanager
def connect_proxy(user_info: str | None = None) -> Iterator[Tunnels]:
    tunnels = Tunnels(user_info)
    with RawServer(tunnels.answer) as server:
        tunnels.port = server.port
        yield tunnels


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certs(authority, project, monkeypatch):
    """A folder next to the pool file; hide this machine's own settings."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    folder = project.pytester.path / "certs"
    folder.mkdir()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    ours = authority.issue_cert("tests@example.org")
    ours.cert_chain_pems[0].write_to_path(folder / "ours.pem")
    ours.private_key_pem.write_to_path(folder / "ours.key")
    ours.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    return folder


@pytest.fixture
def tls_server(authority):
    with serving_tls(good(authority)) as one:
        yield one


@pytest.fixture
def strict_server(authority):
    """A server that requires a client certificate."""
    tls = serving(authority.issue_cert("127.0.0.1"))
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    with serving_tls(tls) as one:
        yield one


def go(project, tls_server: RawServer, provider: str, *options: str) -> Played:
    project.write_pool(base_url=tls_server.base_url, provider=provider)
    project.suite(SUITE.format(prompts=["say fine"]))
    return run(project, ["say fine"], *options, judged=False, episode_timeout_s=10)


SOLVED = {("solved", None): 1}


def outcome(played: Played) -> str:
    (found,) = {kind for kind, _ in played.outcomes()}
    return found


def effective(project) -> dict[str, tuple[object, str]]:
    values = read_manifest(project.directory).effective
    return {one.name: (one.value, one.origin) for one in values if one.name.startswith("p ")}


@pytest.mark.slow
def test_private_authority_is_trusted_if_the_pool_names_it(project, certs, tls_server):
    assert outcome(go(project, tls_server, "")) == "infra"
    assert tls_server.requests == []
    assert go(project, tls_server, CA).outcomes() == SOLVED
    assert effective(project)["p ca_file"] == (str(certs / "ca.pem"), "pool.toml")


def test_authority_of_the_pool_is_the_only_trusted_one(project, certs, tls_server):
    trustme.CA().cert_pem.write_to_path(certs / "ca.pem")
    assert outcome(go(project, tls_server, CA)) == "infra"
    assert tls_server.requests == []


@pytest.mark.slow
def test_authority_of_the_environment_is_trusted_if_the_pool_allows_it(
    project, certs, tls_server, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certs / "ca.pem"))
    assert outcome(go(project, tls_server, "")) == "infra"
    assert tls_server.requests == []
    assert go(project, tls_server, "trust_env = true").outcomes() == SOLVED
    assert effective(project)["p ca_file"] == (
        str(certs / "ca.pem"),
        "environment SSL_CERT_FILE",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "ours",
    [
        'client_cert = "certs/ours.pem"\nclient_key = "certs/ours.key"',
        'client_cert = "certs/both.pem"',
    ],
    ids=["two files", "one file"],
)
@pytest.mark.usefixtures("certs")
def test_server_that_requires_a_certificate_gets_the_pools(project, strict_server, ours):
    assert outcome(go(project, strict_server, CA, "--ultrapar-max-attempts=1")) == "infra"
    assert strict_server.requests == []
    assert go(project, strict_server, f"{CA}\n{ours}").outcomes() == SOLVED


@pytest.mark.usefixtures("certs")
def test_requests_go_through_the_proxy_of_the_pool(project, tls_server, workers):
    with connect_proxy() as proxy:
        played = go(project, tls_server, f'{CA}\nproxy = "{proxy.url}"', workers)
    assert played.outcomes() == SOLVED
    assert proxy.tunnels == [f"127.0.0.1:{tls_server.port}"]
    assert effective(project)["p proxy"] == (proxy.url, "pool.toml")


@pytest.mark.slow
@pytest.mark.usefixtures("certs")
def test_password_of_a_proxy_reaches_only_the_proxy(project, tls_server, monkeypatch):
    suite = """
import os, warnings

@prefetch
async def telling(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "say " + os.environ["MY_PROXY"]}])).text

def test_tells(telling):
    print(os.environ["MY_PROXY"])
    assert telling == os.environ["MY_PROXY"]
"""
    with connect_proxy(USER_INFO) as proxy:
        monkeypatch.setenv("MY_PROXY", f"http://{QUOTED}@127.0.0.1:{proxy.port}")
        project.write_pool(base_url=tls_server.base_url, provider=f'{CA}\nproxy_env = "MY_PROXY"')
        project.suite(suite)
        result = project.run("-n0", "-rA", "--junitxml=junit.xml", "--ultrapar-debug-log=all")
    output = result.stdout.str() + result.stderr.str()
    assert list(project.outcomes().values()) == ["unsolved"]
    assert (proxy.tunnels, proxy.refused) == ([f"127.0.0.1:{tls_server.port}"], 0)
    assert effective(project)["p proxy"] == (proxy.url, "environment MY_PROXY")
    assert f"p proxy = {proxy.url} (environment MY_PROXY)" in output
    (request,) = tls_server.requests
    assert b"proxy-authorization" not in request.raw.lower()
    files = [path for path in project.pytester.path.rglob("*") if path.is_file()]
    said = [output.encode(), *(path.read_bytes() for path in files)]
    for spelling in (PASSWORD, quote(PASSWORD, safe=""), "word-canary"):
        assert not [one for one in said if spelling.encode() in one]


@pytest.mark.usefixtures("certs")
def test_proxy_that_refuses_fails_the_case_and_is_named(project, tls_server, monkeypatch):
    with connect_proxy(USER_INFO) as proxy:
        monkeypatch.setenv("MY_PROXY", f"http://someone:wrong-canary@127.0.0.1:{proxy.port}")
        played = go(
            project, tls_server, f'{CA}\nproxy_env = "MY_PROXY"', "--ultrapar-max-attempts=1"
        )
    assert outcome(played) == "infra"
    assert (proxy.tunnels, tls_server.requests) == ([], [])
    (attempt,) = played.attempts["say fine"]
    assert (attempt["outcome"], attempt["maybe_billed"]) == ("connect", False)
    assert "the proxy answered 407" in played.rows["say fine"]["error"]
    assert "wrong-canary" not in played.output


@pytest.mark.slow
@pytest.mark.usefixtures("certs")
def test_proxy_of_the_environment_is_used_if_the_pool_allows_it(project, tls_server, monkeypatch):
    with connect_proxy(USER_INFO) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"{QUOTED}@127.0.0.1:{proxy.port}")
        assert go(project, tls_server, CA).outcomes() == SOLVED
        assert proxy.tunnels == []
        assert go(project, tls_server, f"{CA}\ntrust_env = true").outcomes() == SOLVED
        assert proxy.tunnels == [f"127.0.0.1:{tls_server.port}"]
        monkeypatch.setenv("NO_PROXY", "example.org,127.0.0.1")
        assert go(project, tls_server, f"{CA}\ntrust_env = true").outcomes() == SOLVED
        assert len(proxy.tunnels) == 1


def test_missing_file_ends_the_run_before_any_request(project, certs, tls_server):
    project.write_pool(base_url=tls_server.base_url, provider='ca_file = "certs/gone.pem"')
    project.suite(SUITE.format(prompts=["say fine"]))
    result = project.run_here("-n0")
    assert result.ret == 4
    said = "pool.toml: provider[0].ca_file names a file that cannot be read (No such file or"
    assert said in result.stderr.str()
    assert tls_server.requests == []


def test_metrics_are_read_through_the_same_proxy_and_authority(authority, certs, monkeypatch):
    async def running(peer: Peer, _: Request) -> None:
        await peer.send(BUSY)
        peer.close()

    with RawServer(running, tls=good(authority)) as metrics, connect_proxy(USER_INFO) as proxy:
        url = f"{metrics.url}/metrics"
        network = Network(ca_file=str(certs / "ca.pem"), proxy_env="MY_PROXY")
        environ = {"MY_PROXY": f"http://{QUOTED}@127.0.0.1:{proxy.port}"}
        load = ask_load(url, route_to(network, url, environ, Location("pool.toml")))
    assert load == ServerLoad(7.0, 3.0)
    assert proxy.tunnels == [f"127.0.0.1:{metrics.port}"]
    assert [one.headers.get("proxy-authorization") for one in metrics.requests] == [None]
