"""A key that a pool lists twice, in any spelling, is one key: judged by the server."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.run_summary import read_summary
from tests.plugin.conftest import CANARY, cases
from tests.plugin.test_secrets import leaks

SUITE = cases([f"slow 0.1 {n}" for n in range(10)])
PROVIDER = """
[[provider]]
name = "{name}"
api = "openai"
base_url = "{url}"
keys = {keys}
per_key = {{ workers = 5 }}
[[provider.model]]
name = "{model}"
{more}
"""
ONE = '[{ name = "key0", env = "TEST_KEY_0" }]'
OTHER_VARIABLE = '[{ name = "other", env = "TEST_KEY_1" }]'
N_REQUESTS = 20


def second(server, **fields: str) -> str:
    """The table of a second provider: like the first, with other names and `fields`."""
    words = {"name": "q", "url": server.base_url, "keys": ONE, "model": "n", "more": ""} | fields
    return PROVIDER.format(**words)


LISTED = {
    "scheme in capitals": lambda server: second(
        server, url=server.base_url.replace("http://", "HTTP://")
    ),
    "localhost": lambda server: second(
        server, url=server.base_url.replace("127.0.0.1", "LOCALHOST")
    ),
    "dot in the path": lambda server: second(server, url=server.base_url.replace("/v1", "/./v1")),
    "another variable": lambda server: second(server, keys=OTHER_VARIABLE),
    "an instance's own address": lambda server: second(
        server,
        url="https://api.example.com/v1",
        more=f'instances = [{{ name = "i", base_url = "{server.base_url}" }}]',
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name != "an instance's own address"))
        for name in LISTED
    ],
)
def test_key_of_two_providers_has_only_one_set_of_seats(project, server, monkeypatch, name):
    monkeypatch.setenv("TEST_KEY_1", f"{CANARY}-0")
    first = second(server, name="p", model="m")
    write(project, first, LISTED[name](server))
    check_run(project, "-n0")


def write(project, *providers: str) -> None:
    project.pytester.path.joinpath("pool.toml").write_text("schema = 1\n" + "".join(providers))


def check_run(project, workers: str) -> None:
    """All cases are answered, with at most 5 in flight; the run's own audit agrees."""
    project.suite(SUITE)
    result = project.run(workers)
    assert result.ret == 0, result.stdout.str()
    assert len(project.server.prompts) == N_REQUESTS
    assert 1 < project.server.work.most <= 5
    assert {row["outcome"] for row in project.rows()} == {"solved"}
    (audited,) = read_summary(project.directory).audit
    assert (audited.n, audited.workers, audited.passed) == (N_REQUESTS, 5, ())
    assert audited.in_flight <= 5
    assert f"ultrapar: counted as one key: {audited.limit}\n" in result.stdout.str()
    assert len({(row["provider"], row["key"]) for row in project.rows("attempts")}) == 2
    assert leaks(project) == []
    assert CANARY not in result.stdout.str() + result.stderr.str()
