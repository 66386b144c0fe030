"""A host's news from a provider applies to all hosts, judged by the provider's own log."""

from __future__ import annotations

import pytest

from pytest_ultrapar.testing import read_server_log
from tests.plugin.cluster_stage import each_once, ended
from tests.plugin.conftest import cases
from tests.running import wait_until
from tests.simulated_pool import asking, pool_text, serving

pytestmark = pytest.mark.slow

OF_BOTH = {"provider": "timeout_s = 5", "models": ["m", "n"]}
FAULTS = """
[[fault]]
key = "key0"
kind = "error"
error = "invalid_api_key"
after_requests = 40

[[fault]]
key = "key1"
kind = "error"
status = 429
headers = { retry-after = "60" }
after_requests = 40
"""
KNOWN_S = 1.6
"""One host learns it and reports it within 0.3 s, the others read it within 0.8 s; the rest is for
a busy machine."""


def test_all_hosts_stop_using_a_refused_key_and_pause_a_rate_limited_one(project, hosts):
    """Including a host that joins after all others know."""
    project.suite(cases(120))
    path = project.pytester.path
    text = pool_text("workers = 6", 0.6, name="lab", keys=3, **OF_BOTH)
    (path / "pool.toml").write_text(text)
    log_path = path / "server.jsonl"
    with serving(text, log_path, faults=FAULTS) as server:
        option = asking(server)
        run = [hosts(f"host{n}", "-n0", option) for n in range(3)]
        # A request in flight has no status yet.
        wait_until(
            lambda: {401, 429} <= {row.status for row in read_server_log(log_path).requests}, 60
        )
        heard_s = read_server_log(log_path).requests[-1].t_arrival_s + KNOWN_S
        wait_until(lambda: read_server_log(log_path).requests[-1].t_arrival_s >= heard_s, 60)
        run.append(hosts("late", "-n0", option))
        outputs = ended(*run)
    log = read_server_log(log_path)
    each_once(240, *run)
    for key, status in (("key0", 401), ("key1", 429)):
        refused = [row for row in log.requests if row.key == key and row.status == status]
        sent_s = [row.t_arrival_s for row in log.requests if row.key == key]
        first_s = refused[0].t_arrival_s
        assert max(sent_s) <= first_s + KNOWN_S
        # Requests in flight on all hosts by then, and those sent before the others learned it: each
        # host may get a refusal of its own. A pause belongs to a lane, of which there are two, and
        # a host needs two refusals to know that its key is dead.
        assert len(refused) <= 6 + 6 + 3 * 2
    assert log.requests[-1].t_arrival_s > first_s + 3, "no host could have sent later"
    assert "key lab/key0 was refused" in outputs[-1]
    assert "lane lab/m/key1 was rate limited on another host" in outputs[-1]
    assert {row["key"] for row in run[-1].rows()} <= {"key2"}


def test_two_runs_with_one_key_get_equal_shares_of_the_smallest_limit(project, hosts):
    """Each has its own model, so that the provider's log shows whose request it is."""
    project.suite(cases(80))
    path = project.pytester.path
    for name, qps in (("pool", "qps = 20,"), ("other", "qps = 8,")):
        text = pool_text(f"{qps} workers = 8", 0.3, name="lab", **OF_BOTH)
        (path / f"{name}.toml").write_text(text)
    log_path = path / "server.jsonl"
    with serving((path / "pool.toml").read_text(), log_path) as server:
        option = asking(server)
        one = hosts("one", "-n0", option, "--ultrapar-model=m", run="first")
        other = "--ultrapar-pool=other.toml"
        two = hosts("two", "-n0", option, "--ultrapar-model=n", other, run="second")
        outputs = [one.end(), two.end()]
    log = read_server_log(log_path)
    assert [one.code, two.code] == [0, 0], outputs
    lower = "limit lab/key0: qps = 20 in this pool, but 8 on other hosts that share this limit"
    assert lower in outputs[0]
    assert "that share this limit" not in outputs[1]
    sent_s = [[row.t_arrival_s for row in log.requests if row.model == name] for name in "mn"]
    begin_s, end_s = max(one[0] for one in sent_s), min(one[-1] for one in sent_s)
    assert end_s - begin_s > 5, "they hardly ran at the same time"
    sent = [sum(begin_s + 2 <= at_s <= end_s for at_s in one) for one in sent_s]
    assert sum(sent) ** 2 / (2 * sum(n * n for n in sent)) >= 0.95
    together = [at_s for one in sent_s for at_s in one if begin_s + 2 <= at_s <= end_s]
    assert max(sum(at_s <= one < at_s + 1 for one in together) for at_s in together) <= 8 + 1
