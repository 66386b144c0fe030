"""A run's report on its speed: bound, efficiency, where the time went, limits, saturation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_ultrapar.store.manifest import read_manifest
from tests.plugin.conftest import CANARY, cases

ASKING = cases([f"say yes {n}" for n in range(12)], 'assert answer.startswith("yes")')

BUSY = """
import time

@prefetch
async def reply(llm, n) -> str:
    text = ""
    for turn in range(12):
        text = (await llm.chat([{"role": "user", "content": f"say yes {n} {turn}"}])).text
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass
    return text

# Fewer cases than seats, so that no time counts as waiting for a seat. At most two share a loop, so
# that an answer is read at most one turn of the other late.
@pytest.mark.parametrize("n", range(2))
def test_busy(reply):
    assert reply.startswith("yes")
"""


def test_a_run_compares_its_time_with_the_lower_bound_of_its_pool(project):
    project.suite(ASKING)
    project.run("-n0")
    project.report.fnmatch_lines(
        [
            "lower bound * s (*); efficiency *.* %",
            "where the time went: bound * s (*.* %)*",
            "at most * in flight; no request through llm exceeded a limit; *: p/key0 *",
        ]
    )
    summary = json.loads((project.directory / "summary.json").read_text())
    assert 0 < summary["efficiency"] <= 1
    assert summary["bound_s"] <= summary["statistics"]["makespan_s"]
    (key,) = summary["audit"]
    assert (key["limit"], key["n"], key["workers"], key["passed"]) == ("p/key0", 12, 4, [])
    assert 1 <= key["in_flight"] <= 4
    entry = json.loads((project.directory / "benchmark.json").read_text())["benchmarks"][0]
    assert entry["extra_info"]["bound_s"] == summary["bound_s"]
    assert entry["extra_info"]["limits"] == summary["audit"]
    parts = summary["attribution"]["run"]
    assert sum(parts.values()) == pytest.approx(summary["statistics"]["makespan_s"], rel=0.02)


SIMULATED = """
schema = 1

[[provider]]
name = "demo"
api = "simulated"
keys = [{ name = "key0" }, { name = "key1", workers = 2 }]
per_key = { workers = 3, qps = 30 }
latency = { kind = "log-normal", median_s = 0.05, sigma = 0.3 }

[[provider.model]]
name = "m"

[[provider.model]]
name = "narrow"
keys = ["key1"]
"""


@pytest.mark.slow
def test_the_bound_can_be_computed_from_the_manifest_and_the_table_of_attempts(
    project, monkeypatch, capsys
):
    project.pytester.path.joinpath("pool.toml").write_text(SIMULATED)
    project.suite(ASKING.replace('answer.startswith("yes")', "answer"))
    assert project.run("-n0").ret == 0
    bound = read_manifest(project.directory).bound
    assert bound is not None
    assert bound.prices
    # The time that no cause explains: `other_s` is the rest, and the causes are found without it.
    attribution = json.loads((project.directory / "summary.json").read_text())["attribution"]
    assert abs(attribution["run"]["other_s"]) <= 0.02 * attribution["makespan_s"]
    monkeypatch.chdir(project.pytester.path)
    page = Path(__file__).parents[2].joinpath("docs", "explanation", "throughput.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    capsys.readouterr()
    exec(compile(program, "docs/explanation/throughput.md", "exec"), {})
    proven, proven_s, *_, published_s, _ = capsys.readouterr().out.split()
    assert proven == "proven"
    assert float(published_s) == pytest.approx(bound.seconds, abs=1e-3)
    # Requests of nearly the same length are published together, with the shortest length.
    assert float(published_s) <= float(proven_s) + 1e-3
    assert float(published_s) >= 0.94 * float(proven_s) - 1e-3


@pytest.mark.slow
def test_a_client_that_cannot_keep_up_is_reported(project):
    project.suite(BUSY)
    result = project.run("-n0")
    result.stdout.fnmatch_lines(["CLIENT-BOUND: *% of the makespan was spent in the client. *"])
    summary = json.loads((project.directory / "summary.json").read_text())
    parts = summary["attribution"]["run"]
    assert parts["client_s"] > 0.1 * summary["attribution"]["makespan_s"]


def test_an_interrupted_or_empty_measurement_has_no_bound(project):
    project.suite("@pytest.mark.skip\n" + ASKING.lstrip())
    result = project.run("-n0")
    result.assert_outcomes(skipped=12)
    result.stdout.no_fnmatch_line("lower bound *")
    summary = json.loads((project.directory / "summary.json").read_text())
    assert (summary["bound_s"], summary["attribution"], summary["audit"]) == (None, None, [])


BYPASSING = """
import asyncio
import os
import urllib.request

@prefetch
async def reply(llm, n) -> str:
    if n % 2:
        return (await llm.chat([{"role": "user", "content": f"say yes {n}"}])).text
    def send():
        body = b'{"model": "m", "messages": [{"role": "user", "content": "say yes"}]}'
        headers = {"Authorization": f"Bearer {os.environ['TEST_KEY_0']}"}
        request = urllib.request.Request(os.environ["URL"], body, headers)
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()
    return await asyncio.to_thread(send)

@pytest.mark.parametrize("n", range(6))
def test_ask(reply):
    assert "yes" in reply
"""


def test_a_run_counts_cases_that_sent_nothing_through_llm(project, monkeypatch):
    monkeypatch.setenv("URL", f"{project.server.base_url}/chat/completions")
    project.suite(BYPASSING)
    result = project.run_here()
    assert result.ret == 0, result.stdout.str()
    project.report.fnmatch_lines(
        [
            "* no request through llm exceeded a limit; "
            "highest use of limits in this run's records: p/key0 *",
            "3 of 6 graded cases sent no request through llm; *",
        ]
    )
    assert len(project.server.prompts) == 6
    assert CANARY not in result.stdout.str()
