"""Limits over all processes, judged by the server's own log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ultrapar.testing import ServerLog, read_server_log
from tests.running import run_pytest
from tests.simulated_pool import pool_text

pytestmark = pytest.mark.slow

POOL = pool_text("workers = 5, qps = 10", 0.3, sigma=0.5, keys=3, models=["common", "rare"])
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, model, number) -> str:
    return (await llm.chat([{"role": "user", "content": f"{number}"}])).text

@pytest.mark.ultrapar(models="common")
@pytest.mark.parametrize("number", range(COMMON))
def test_common(answer, number):
    assert answer == f"echo: {number}"

@pytest.mark.ultrapar(models="rare")
@pytest.mark.parametrize("number", range(RARE))
def test_rare(answer, number):
    assert answer == f"echo: {number}"
"""


def _run(folder: Path, *args: str, common: int, rare: int, pool: str = POOL) -> ServerLog:
    folder.joinpath("pool.toml").write_text(pool)
    suite = SUITE.replace("COMMON", str(common)).replace("RARE", str(rare))
    folder.joinpath("test_suite.py").write_text(suite)
    run_pytest(folder, *args)
    return read_server_log(folder / ".ultrapar" / "latest" / "simulator.jsonl")


def _assert_held(log: ServerLog) -> None:
    assert log.count(429) == 0
    for key in ("key0", "key1", "key2"):
        assert log.max_in_flight(key=key) <= 5
        assert log.max_in_window(1.0, key=key) <= 11


def test_seats_and_rates_hold_in_one_process(tmp_path):
    log = _run(tmp_path, "-n0", common=120, rare=120)
    assert len(log.requests) == 240
    _assert_held(log)


def test_models_of_a_family_share_their_seats_on_each_key(tmp_path):
    pool = pool_text(
        "qps = 100", 0.3, sigma=0.5, keys=3, provider="per_key_model = { workers = 3 }",
        models=["common", "rare"], model='family = "both"',
    )  # fmt: skip
    log = _run(tmp_path, "-n2", common=60, rare=60, pool=pool)
    assert log.count(429) == 0
    assert [log.max_in_flight(key=f"key{n}") for n in range(3)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("policy", "workers"),
    [("even", "-n6"), ("by-model", "-n0"), ("round-robin", "-n0"), ("by-key", "-n0")],
)
def test_uneven_matrix_leaves_no_key_idle(tmp_path, policy, workers):
    log = _run(tmp_path, workers, "--ultrapar-policy", policy, common=270, rare=30)
    _assert_held(log)
    ends = [max(r.t_end_s for r in log.requests if r.key == f"key{n}") for n in range(3)]
    began = min(r.t_arrival_s for r in log.requests)
    assert min(ends) - began >= 0.9 * (max(ends) - began)
