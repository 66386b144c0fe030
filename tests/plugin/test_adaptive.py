"""Adaptive mode in whole runs: the server enforces limits that the run does not know."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.simulator.address import default_token
from pytest_ultrapar.testing import read_server_log
from tests.plugin.conftest import cases
from tests.simulated_pool import pool_text, serving

pytestmark = pytest.mark.slow

POOL = pool_text("workers = { fixed = 4, adaptive = 12 }", 0.05, sigma=0.3, keys=2)
SUITE = cases(300, "assert answer")


@pytest.fixture
def adaptive(project):
    project.pytester.path.joinpath("pool.toml").write_text(POOL)
    project.suite(SUITE)
    return project


def test_limits_are_estimated_below_the_ceiling_and_their_history_is_stored(adaptive):
    result = adaptive.run("-n0", "--ultrapar-rate-mode=adaptive")
    assert result.ret == 0
    log = read_server_log(adaptive.directory / "simulator.jsonl")
    assert {limit.workers for limit in log.limits} == {4}, "the server holds the fixed values"
    n_refused = log.count(429)
    assert 0 < n_refused < 0.2 * len(log.requests)
    assert len(log.requests) == 300 + n_refused
    rows = adaptive.rows()
    assert len({row["case_id"] for row in rows}) == len(rows) == 300
    assert {row["rate_mode"] for row in rows} == {"adaptive"}

    history = pq.read_table(adaptive.directory / "limits.parquet").to_pylist()
    assert {row["limit"] for row in history} == {"sim/key0", "sim/key1"}
    assert all(1 <= row["workers"] <= 12 for row in history)
    for key in ("sim/key0", "sim/key1"):
        own = [row for row in history if row["limit"] == key]
        assert (own[0]["reason"], own[0]["workers"]) == ("start", 10)
        assert any(row["reason"].startswith("refused") for row in own)
        assert [row["t_s"] for row in own] == sorted(row["t_s"] for row in own)
    attempts = pq.read_table(adaptive.directory / "attempts.parquet").to_pylist()
    assert max(row["in_flight_at_send"] for row in attempts) <= 12
    adaptive.report.fnmatch_lines(
        [
            "no lower bound, because the limits of sim were estimated",
            "*estimated limit of sim/key0: workers = *",
            "*estimated limit of sim/key1: workers = *",
        ]
    )
    result.stdout.no_fnmatch_line("*efficiency*")
    summary = json.loads((adaptive.directory / "summary.json").read_bytes())
    extra = json.loads((adaptive.directory / "benchmark.json").read_bytes())["benchmarks"]
    (whole,) = [one["extra_info"] for one in extra if "bound_s" in one["extra_info"]]
    for name in ("bound_s", "binding", "efficiency", "attribution"):
        assert summary[name] is None
        assert whole[name] is None
    assert summary["audit"]


QUEUES = """
schema = 1
[[provider]]
name = "vllm"
api = "simulated"
keys = [{ name = "key0" }]
latency = { kind = "knee", median_s = 0.1, knee = 6 }
[[provider.model]]
name = "m"
"""
ASKED = """
schema = 1
[[provider]]
name = "vllm"
api = "openai"
base_url = "BASE/v1"
metrics_url = "BASE/metrics"
rate_mode = "adaptive"
keys = [{ name = "key0", env = "VLLM_KEY" }]
[[provider.model]]
name = "m"
per_instance = { workers = 100 }
"""


def test_run_reads_the_queue_length_of_a_server_that_queues(project, monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_KEY", default_token("vllm", "key0"))
    project.suite(SUITE)
    with serving(QUEUES, tmp_path / "server.jsonl") as server:
        base = server.base_url("vllm").removesuffix("/v1")
        project.pytester.path.joinpath("pool.toml").write_text(ASKED.replace("BASE", base))
        assert project.run("-n2").ret == 0
    assert len(read_server_log(tmp_path / "server.jsonl").requests) == 300
    history = pq.read_table(project.directory / "limits.parquet").to_pylist()
    assert "no known metric" not in project.report.str()
    told = [row["workers"] for row in history if row["reason"].startswith("server reports")]
    assert told
    assert 3 <= told[-1] <= 20, "near six, which the server answers at the same time"
