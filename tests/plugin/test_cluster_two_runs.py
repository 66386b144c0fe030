"""Two runs that share a key on a cluster, judged by the provider's own log."""

from __future__ import annotations

import pytest

from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides
from pytest_ultrapar.simulator.process import SimulatorProcess
from pytest_ultrapar.testing import read_server_log
from tests.plugin.test_cluster import hosts, kv  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow

SUITE = """
@pytest.mark.parametrize("prompt", [f"say {n}" for n in range(80)])
def test_it(answer, grade): grade("solved")
"""

SHARED = """
schema = 1

[[provider]]
name = "lab"
api = "simulated"
keys = [{ name = "key" }]
per_key = { QPS workers = 8 }
timeout_s = 5
latency = { kind = "fixed", median_s = 0.3 }

[[provider.model]]
name = "m"
[[provider.model]]
name = "n"
"""


def test_two_runs_with_one_key_get_the_same_of_the_smallest_limit(project, hosts):  # noqa: F811
    """Each has a model of its own, by which the provider's log tells them apart."""
    project.suite(SUITE)
    path = project.pytester.path
    for name, qps in (("pool", "qps = 20,"), ("other", "qps = 8,")):
        (path / f"{name}.toml").write_text(SHARED.replace("QPS", qps))
    pool = load_pool(path / "pool.toml", environ={}, overrides=Overrides())
    log_path = path / "server.jsonl"
    with SimulatorProcess.start(pool, log_path=log_path) as server:
        option = f"--ultrapar-simulator={server.base_url('lab').split('/lab')[0]}"
        one = hosts("one", "-n0", option, "--ultrapar-model=m", run="first")
        other = "--ultrapar-pool=other.toml"
        two = hosts("two", "-n0", option, "--ultrapar-model=n", other, run="second")
        outputs = [one.end(), two.end()]
    log = read_server_log(log_path)
    assert [one.code, two.code] == [0, 0], outputs
    lower = "limit lab/key: qps = 20 in this pool and 8 in that of others who share it"
    assert lower in outputs[0]
    assert "who share it" not in outputs[1]
    sent_s = [[row.t_arrival_s for row in log.requests if row.model == name] for name in "mn"]
    begin_s, end_s = max(one[0] for one in sent_s), min(one[-1] for one in sent_s)
    assert end_s - begin_s > 5, "they were hardly at work together"
    sent = [sum(begin_s + 2 <= at_s <= end_s for at_s in one) for one in sent_s]
    assert sum(sent) ** 2 / (2 * sum(n * n for n in sent)) >= 0.95
    together = [at_s for one in sent_s for at_s in one if begin_s + 2 <= at_s <= end_s]
    assert max(sum(at_s <= one < at_s + 1 for one in together) for at_s in together) <= 8 + 1
