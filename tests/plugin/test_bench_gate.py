"""The example workflow's commands: a bench on the simulated provider, and its gate."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.light import LIGHT
from tests.unit.test_documentation import ROOT

pytestmark = pytest.mark.slow

TOO_MUCH = "speedup>=60"
"""A speed-up that the 28 cases of a mode can never reach."""


def workflow_commands():
    """The commands after `ultrapar` in the example workflow, up to a pipe or the next step."""
    text = (ROOT / ".github" / "workflows" / "bench.yml").read_text(encoding="utf-8")
    shown = re.compile(r"env-head/bin/ultrapar\" (.+?)(?= \| tee|\n +- )", re.DOTALL)
    return [found.strip() for found in shown.findall(text.replace("\\\n", ""))]


def ultrapar(words):
    return subprocess.run(
        [sys.executable, "-m", "pytest_ultrapar.cli", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_gate_of_the_workflow_passes_and_fails(tmp_path, monkeypatch, outside_xdist):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pool = (ROOT / "pools" / "ci.toml").read_text()
    assert "median_s = 1.0" in pool
    (tmp_path / "ci.toml").write_text(pool.replace("median_s = 1.0", "median_s = 0.06"))
    benches, gates = (
        [shlex.split(one) for one in workflow_commands() if one.startswith(kind)]
        for kind in ("bench ", "gate ")
    )
    (bench,) = benches
    (gate,) = [words for words in gates if any(word.startswith("speedup") for word in words)]
    here = {
        "pools/ci.toml": str(tmp_path / "ci.toml"),
        "$RUNNER_TEMP/runs/bench": str(tmp_path / "bench"),
    }
    done = ultrapar([here.get(word, word) for word in bench] + ["-q", *LIGHT])
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "bench"
    judged = ultrapar([here.get(word, word) for word in gate])
    # A busy machine decides nothing about speed.
    is_decided = "the client, not the pool, limited" not in judged.stdout
    wanted = "pass" if is_decided else "undecided"
    assert judged.returncode == 0, judged.stdout + judged.stderr
    rules = [word for word in gate if word.startswith("speedup")]
    verdicts = {rule: _cell(judged.stdout, rule) for rule in rules}
    assert verdicts[rules[0]] == wanted, judged.stdout
    # Fourteen cases of one model may decide nothing while others use the machine.
    assert set(verdicts.values()) <= {wanted, "undecided"}, judged.stdout
    too_much = ultrapar(["gate", str(out), "--markdown", "--rule", TOO_MUCH])
    assert too_much.returncode == (1 if is_decided else 0), too_much.stdout + too_much.stderr
    assert _cell(too_much.stdout, TOO_MUCH) == ("FAIL" if is_decided else "undecided")
    assert_readers_agree(out)
    modes = [pq.read_table(out / mode / "results.parquet") for mode in ("serial", "ultra")]
    assert [len(table) for table in modes] == [28, 28]


def _cell(table, rule):
    rows = [line.replace("\\", "").split("|") for line in table.splitlines() if line[:1] == "|"]
    (found,) = [row[2].strip() for row in rows if row[1].strip() == rule]
    return found


def assert_readers_agree(out):
    """The report, extra_info and each statistic of the series give the same speed-up."""
    found = json.loads((out / "benchmark.json").read_text())
    entries = {entry["name"]: entry for entry in found["benchmarks"]}
    for name, entry in entries.items():
        if entry["params"]["mode"] != "ultra" or "latency" in name:
            continue
        serial = entries[name.replace("[ultra", "[serial")]
        for statistic in ("min", "max", "mean", "median"):
            ratio = serial["stats"][statistic] / entry["stats"][statistic]
            assert ratio == pytest.approx(entry["extra_info"]["speedup"], rel=0.02), name
    serials = [
        entry["extra_info"]["makespan_s"]
        for entry in entries.values()
        if entry["params"]["mode"] == "serial" and entry["params"]["model"]
    ]
    whole = entries["phase53[serial]"]["extra_info"]["makespan_s"]
    assert sum(serials) == pytest.approx(whole)
    report = (out / "report.txt").read_text()
    (said,) = re.findall(r"^ultra .*?([\d.]+)x", report, re.MULTILINE)
    assert float(said) == pytest.approx(
        entries["phase53[ultra]"]["extra_info"]["speedup"], rel=0.02
    )
