"""Daily limits and budgets over several hosts, judged by the provider's own log."""

from __future__ import annotations

from collections import Counter

import pytest

from pytest_ultrapar.cli import main
from pytest_ultrapar.cluster.address import read_address
from pytest_ultrapar.cluster.server import ClusterServer
from tests.key_value_server import KeyValueServer
from tests.plugin.cluster_stage import rows_of
from tests.plugin.conftest import cases
from tests.running import wait_until

pytestmark = pytest.mark.slow

N = 30


@pytest.fixture
def start(project, hosts, monkeypatch):
    """A function that starts hosts as on different machines: each with its own days and locks."""

    def start(name, *args, **options):
        for variable in ("ULTRAPAR_STATE_DIR", "ULTRAPAR_LOCK_DIR"):
            monkeypatch.setenv(variable, str(project.pytester.path / f"{name}-{variable}"))
        return hosts(name, *args, **options)

    return start


def test_two_hosts_use_up_a_daily_limit_and_never_exceed_it(lab, project, start):
    there = lab('workers = 4, rpd = 10, day = "UTC"', 0.01)
    project.suite(cases(N))
    hosts = [start(name, "-n0", there.option) for name in ("one", "two")]
    outputs = [host.end(None) for host in hosts]
    for key in ("key0", "key1"):
        assert len([one for one in there.log.requests if one.key == key]) == 10
    rows = rows_of(*hosts)
    assert Counter(row["outcome"] for row in rows) == {"solved": 20, "infra": N - 20}, outputs
    said = "".join(host.directory.joinpath("report.md").read_text("utf-8") for host in hosts)
    assert "daily" in said
    assert "used up" in str([row for row in rows if row["outcome"] == "infra"])
    said = "continue with ultrapar cluster reopen night DIR, where DIR is the "
    joined = " ".join("".join(outputs).split())
    assert f"{said}merged run, and then the same command and a new --ultrapar-out" in joined
    assert "--ultrapar-resume" not in joined


PRICED = """
@prefetch
async def short(llm, prompt) -> str:
    return (await llm.chat([{{"role": "user", "content": prompt}}], max_tokens=20)).text

@pytest.mark.parametrize("prompt", [f"say {{n}}" for n in range({n})])
def test_it(short, grade): grade("solved")
"""
PRICES = """price_per_mtok_in = 3.00
price_per_mtok_out = 15.00
"""


def wait_for_hosts(kv, n):
    """Wait until this many hosts are alive in the ledger."""
    server = ClusterServer(read_address(kv.url, {}))
    server.read_facts()
    wait_until(lambda: server.ledger().n_hosts == n, 60)
    server.close()


def test_daily_counts_survive_the_loss_of_a_host_and_the_server(lab, project, start):
    with KeyValueServer.start("--appendonly", "yes", program="redis") as kv:
        there = lab("workers = 8, rpd = 120", 0.5)
        project.suite(cases(320))
        hosts = [start(name, "-n0", there.option, url=kv.url) for name in ("one", "two", "three")]
        there.wait_for(30)
        wait_for_hosts(kv, 3)
        hosts[0].process.kill()
        # A server that dies with a host does not know what the host had spent at the end. The other
        # hosts learn of its death a renewal later.
        wait_for_hosts(kv, 2)
        there.wait_for(len(there.log.requests) + 30)
        kv.kill()
        kv.run()
        outputs = [host.end(None) for host in hosts[1:]]
    for key in ("key0", "key1"):
        assert 108 <= len([one for one in there.log.requests if one.key == key]) <= 120, outputs
    for host in hosts[1:]:
        # Each host judges its own cases: perhaps one sent all the cases that found no quota.
        graded = [row["outcome"] == "solved" for row in host.rows()]
        assert host.code == (0 if sum(graded) >= 0.98 * len(graded) else 1), outputs


def test_daily_limit_that_the_server_forgot_is_closed_until_a_user_opens_it(
    lab, project, start, monkeypatch, capsys
):
    with KeyValueServer.start() as kv:
        monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
        there = lab("workers = 8, rpd = 120", 0.1)
        project.suite(cases(320))
        hosts = [
            start(name, "-n0", there.option, f"--ultrapar-cluster-patience={patience}", url=kv.url)
            for name, patience in (("one", 600), ("two", 600), ("three", 15))
        ]
        there.wait_for(30)
        wait_for_hosts(kv, 3)
        hosts[0].process.kill()
        kv.kill()
        kv.run()
        # The run does not wait forever for a user to open it.
        output = hosts[2].end(2)
        lost = "the server lost count of what was spent"
        assert f"lab/key0's rpd is closed: {lost}" in output
        closed = "lab/key0's rpd and 1 more limit are closed"
        assert f"{closed}; gave up after 15 s" in output
        assert main(["cluster", "status"]) == 0
        said = capsys.readouterr().out
        known = "to continue with the spending that is still known"
        assert f"{known}, run ultrapar cluster reset-day" in said
        assert f"waits: {closed}; to reopen, run ultrapar cluster reset-day" in said
        assert main(["cluster", "reset-day"]) == 0
        assert "opened" in capsys.readouterr().out
        outputs = [host.end(None) for host in hosts[1:]]
    for key in ("key0", "key1"):
        n = len([one for one in there.log.requests if one.key == key])
        # The last units of the dead host, at most a twentieth, were unknown.
        assert n <= 120 + 120 // 20, outputs
        assert n >= 108, outputs


def test_budget_survives_the_loss_of_a_host_and_is_never_exceeded(lab, project, start):
    there = lab("workers = 4", 0.1)
    path = project.pytester.path / "pool.toml"
    text = path.read_text() + PRICES
    path.write_text(text.replace("schema = 1", "schema = 1\n[pool]\nbudget = 0.015"))
    project.suite(PRICED.format(n=300))
    hosts = [start(name, "-n0", there.option) for name in ("one", "two", "three")]
    there.wait_for(30)
    hosts[0].process.kill()
    outputs = [host.end(None) for host in hosts[1:]]
    spent = sum(
        3e-6 * (one.tokens_in or 0) + 15e-6 * (one.tokens_out or 0) for one in there.log.requests
    )
    assert 0.012 < spent <= 0.015, outputs
    rows = rows_of(*hosts[1:])
    assert {row["outcome"] for row in rows} == {"solved", "infra"}, outputs
    assert "budget" in str([row for row in rows if row["outcome"] == "infra"])
