"""The official SDKs and the simulated provider, judged by its log: five seats, ten a second."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.testing import read_server_log
from tests.running import run_pytest
from tests.simulated_pool import pool_text

# Each SDK takes 1 to 2.5 s to load.
pytestmark = pytest.mark.slow

SUITE = Path(__file__).with_name("sdk_suite.py")
STORM = Path(__file__).with_name("sdk_storm.py")
CANARY = "sk-canary-5d0c93b1"
POOL = pool_text("workers = 5, qps = 10", 0.2, sigma=0.5, model='instances = ["m-at-theirs"]')
OF_SDKS = (
    "OPENAI_API_KEY",
    "OPENAI_ORG_ID",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "GEMINI_API_KEY",
    "MISTRAL_API_KEY",
)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a suite; the user's own keys, which SDKs look for, must not be sent anywhere."""
    own = dict.fromkeys(OF_SDKS, CANARY)
    return run_pytest(folder, "-W", "error", "-q", *options, code=None, **own)


def test_each_sdk_in_each_way_respects_the_limits_and_can_be_replayed(tmp_path):
    tmp_path.joinpath("pool.toml").write_text(POOL, encoding="utf-8")
    tmp_path.joinpath("test_suite.py").write_text(SUITE.read_text(encoding="utf-8"))
    done = run(tmp_path, "-n0")
    assert done.returncode == 0, done.stdout
    directory = (tmp_path / ".ultrapar" / "latest").resolve()
    log = read_server_log(directory / "simulator.jsonl")

    assert log.count(429) == 0
    assert log.max_in_flight(key="key0") <= 5
    assert log.max_in_window(1.0, key="key0") <= 11
    results = pq.read_table(directory / "results.parquet").to_pylist()
    assert {row["outcome"] for row in results} == {"solved"}
    attempts = pq.read_table(directory / "attempts.parquet").to_pylist()
    assert len(attempts) == len(log.requests)
    assert {row["key"] for row in attempts} == {"key0"}
    for path in directory.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
    assert CANARY not in done.stdout + done.stderr

    done = run(tmp_path, "--ultrapar-replay", "latest")
    assert done.returncode == 0, done.stdout
    again = (tmp_path / ".ultrapar" / "latest").resolve()
    assert again != directory
    rows = pq.read_table(again / "results.parquet").to_pylist()
    assert {row["case_id"] for row in rows} == {row["case_id"] for row in results}
    assert {row["outcome"] for row in rows} == {"solved"}
    assert not (again / "simulator.jsonl").exists()
    replayed = pq.read_table(again / "attempts.parquet")["replayed"].to_pylist()
    assert len(replayed) == len(attempts)
    assert None not in replayed
    assert CANARY not in done.stdout + done.stderr


FAULTS = """
[[fault]]
kind = "error"
error = "overloaded"
share = 0.04
[[fault]]
kind = "error"
error = "rate_limit_exceeded"
headers = { retry-after-ms = "50" }
share = 0.04
[[fault]]
kind = "hang"
share = 0.02
[[fault]]
kind = "hang"
at = "body"
share = 0.02
[[fault]]
kind = "drop"
at = "body"
share = 0.03
"""


def test_mixed_ways_under_faults_lose_no_seat_and_no_case(tmp_path):
    pool = POOL.replace("qps = 10 }", "qps = 60 }\ntimeout_s = 1").replace("0.2,", "0.05,")
    tmp_path.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    tmp_path.joinpath("faults.toml").write_text(FAULTS, encoding="utf-8")
    suite = STORM.read_text(encoding="utf-8")
    tmp_path.joinpath("test_suite.py").write_text(suite, encoding="utf-8")
    done = run(tmp_path, "-n1", "--ultrapar-faults", "faults.toml", "--ultrapar-coverage", "0")
    directory = tmp_path / ".ultrapar" / "latest"
    log = read_server_log(directory / "simulator.jsonl")

    assert log.max_in_flight(key="key0") <= 5
    assert log.max_in_window(1.0, key="key0") <= 61
    rows = pq.read_table(directory / "results.parquet").to_pylist()
    assert len(rows) == 200
    # A failure in a stream that has begun is not retried.
    assert {row["outcome"] for row in rows} <= {"solved", "infra"}, done.stdout
    assert sum(row["outcome"] == "solved" for row in rows) >= 150
    outcomes = pq.read_table(directory / "attempts.parquet")["outcome"].to_pylist()
    # A cancelled request may not have been sent yet.
    assert 0 <= len(outcomes) - len(log.requests) <= outcomes.count("cancelled")
    # If a tenth of these had lost their seats, no request could have been sent since.
    assert outcomes.count("cancelled") > 20


HOW_TO = (Path(__file__).parents[2] / "docs" / "how-to" / "sdks.md").read_text(encoding="utf-8")


def test_blocks_of_the_documentation_run_unchanged(tmp_path):
    """All in one run, because loading the SDKs takes the most time."""
    (pool,) = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
    tmp_path.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    suites = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    for number, suite in enumerate(suites):
        tmp_path.joinpath(f"test_{number}.py").write_text(suite, encoding="utf-8")
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{len(suites)} solved" in done.stdout
