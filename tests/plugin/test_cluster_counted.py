"""Limits per day and budgets over several hosts, judged by the provider's own log."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.key_value_server import KeyValueServer
from tests.plugin.test_cluster import Host, Lab, rows_of

N = 30
SUITE = """
@pytest.mark.parametrize("prompt", [f"say {{n}}" for n in range({n})])
def test_it(answer, grade): grade("solved")
"""


@pytest.fixture(scope="module")
def kv():
    with KeyValueServer.start() as server:
        yield server


@pytest.fixture
def start(project, kv, monkeypatch):
    kv.client().flushall()
    monkeypatch.setenv("ULTRAPAR_STATE_DIR", str(project.pytester.path / "state"))
    started = []

    def start(name, *args, **options):
        host = Host(project, kv, name, *args, **options)
        started.append(host)
        return host

    yield start
    for host in started:
        host.process.kill()
        host.process.wait()


@pytest.mark.parametrize("day", ["", ', day = "UTC"'])
def test_a_day_over_two_hosts_is_used_up_and_never_passed(project, start, day):
    lab = Lab(project, f"workers = 4, rpd = 10{day}", 0.01)
    project.suite(SUITE.format(n=N))
    hosts = [start(name, "-n0", lab.option) for name in ("one", "two")]
    outputs = [host.end(60) for host in hosts]
    for key in ("key0", "key1"):
        assert len([one for one in lab.log.requests if one.key == key]) == 10
    rows = rows_of(*hosts)
    assert Counter(row["outcome"] for row in rows) == {"solved": 20, "infra": N - 20}, outputs
    reasons = {row["infra_kind"] for row in rows if row["outcome"] == "infra"}
    assert reasons == {"daily_quota"}
