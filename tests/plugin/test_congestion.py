"""A server with less capacity than the pool declares, which only replies with 503 or 429."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.faults.byte_faults import refuse
from tests.plugin.conftest import cases

SUITE = cases([f"slow 0.05 {n}" for n in range(30)])


@pytest.mark.slow
@pytest.mark.parametrize("status", [503, 429])
def test_server_with_less_capacity_than_declared_costs_no_case_and_is_named(project, status):
    server = project.server
    server.weather = lambda _: refuse(status) if server.work.now > 1 else None
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    assert {row["outcome"] for row in project.rows()} == {"solved"}
    project.report.fnmatch_lines(
        [
            "refusals lowered the limit of p/key0 *, to less than its declared value; "
            "the provider seems *"
        ]
    )
    reasons = pq.read_table(project.directory / "limits.parquet")["reason"].to_pylist()
    assert any(reason.startswith("refused") for reason in reasons)
    # Later answers cannot raise the limit above the declared one.
    assert server.work.most <= 4


def test_run_without_refusals_has_no_history_of_limits(project):
    project.suite(cases(["say one"]))
    assert project.run("-n0").ret == 0
    assert not (project.directory / "limits.parquet").exists()
    assert not (project.directory / "limit-history.jsonl").exists()
