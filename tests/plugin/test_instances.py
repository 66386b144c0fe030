"""The gain from more instances of a model, by the server's log: k at once, until a limit binds."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ultrapar.testing import read_server_log
from tests.plugin.conftest import SUITE, cases
from tests.running import run_pytest
from tests.simulated_pool import pool_text

pytestmark = pytest.mark.slow

CASES, LATENCY_S = 12, 0.25


def most_at_once(folder: Path, instances: int, *, per_key: str = "workers = 50") -> int:
    """The most requests in flight, with this many instances of one seat each."""
    folder.mkdir()
    names = ", ".join(f'"m-{number}"' for number in range(instances))
    more = f"instances = [{names}]\nper_instance = {{ workers = 1 }}"
    (folder / "pool.toml").write_text(pool_text(per_key, LATENCY_S, model=more))
    (folder / "test_answers.py").write_text(SUITE + cases(CASES))
    run_pytest(folder, "-qq", "-n0")
    log = read_server_log(folder / ".ultrapar" / "latest" / "simulator.jsonl")
    requests = log.requests
    assert len(requests) == CASES
    assert {request.instance for request in requests} == {f"m-{n}" for n in range(instances)}
    return log.max_in_flight()


def test_equal_instances_work_at_the_same_time_until_a_limit_binds(tmp_path):
    assert [most_at_once(tmp_path / str(k), k) for k in (1, 4)] == [1, 4]
    assert most_at_once(tmp_path / "bound", 4, per_key="workers = 2") == 2
