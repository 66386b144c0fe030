"""The benchmark file of a run that contains every outcome of a case."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from tests.unit.finished_run import (
    NOW,
    case,
    episode,
    grade,
    make_run,
    write_journal,
)


@pytest.fixture
def benchmark_file(run):
    compact(run.path)
    return run.path / "benchmark.json"


def test_benchmark_json_mean_is_makespan_per_case(benchmark_file, run):
    content = json.loads(benchmark_file.read_text())
    entries = {entry["fullname"]: entry for entry in content["benchmarks"]}
    assert list(entries) == [
        "phase53[ultra]",
        "phase53[serial]",
        "phase53[ultra-m1]",
        "phase53[serial-m1]",
        "phase53[ultra-m2]",
        "phase53[serial-m2]",
        "phase53/latency[ultra]",
    ]
    ultra = entries["phase53[ultra]"]
    extra = ultra["extra_info"]
    assert (extra["n"], extra["makespan_s"]) == (5, pytest.approx(5.0))
    assert ultra["stats"]["mean"] == pytest.approx(1.0)
    assert ultra["stats"]["ops"] == pytest.approx(extra["throughput"])
    assert ultra["stats"]["data"] == pytest.approx([1.0])
    # 2 + 3 + 1 + 1 + 1 seconds of service.
    assert entries["phase53[serial]"]["extra_info"]["makespan_s"] == pytest.approx(8.0)
    assert extra["speedup"] == pytest.approx(8 / 5)
    assert extra["basis"] == "at_most"
    assert (extra["bound_s"], extra["binding"]) == (pytest.approx(3.0), "longest episode")
    assert extra["efficiency"] == pytest.approx(3 / 5)
    assert sum(extra["attribution"]["run"].values()) == pytest.approx(5.0)
    assert extra["simulated"] is True
    assert extra["scores"] == {"extra": 1.0, "workflow": 0.5}
    assert entries["phase53/latency[ultra]"]["stats"]["max"] == 4.0
    # The fields that github-action-benchmark and Bencher require in each entry.
    for name, entry in entries.items():
        assert len(name) <= 1024
        used = [entry["stats"][one] for one in ("mean", "stddev", "median", "iqr", "ops", "rounds")]
        assert all(math.isfinite(one) for one in used)
    assert len(entries) == len(content["benchmarks"])
    assert {"id", "branch", "dirty"} <= content["commit_info"].keys()
    assert {"cpu", "python_version", "system"} <= content["machine_info"].keys()


def test_benchmark_json_of_two_suites_has_the_time_of_each(tmp_path):
    cases = [case(0), msgspec.structs.replace(case(1), suite="phase51")]
    run = make_run(tmp_path / "out", cases)
    write_journal(run, "gw0", episode(0, 1.0, 3.0), episode(1, 2.0, 6.0), grade(0), grade(1))
    compact(run.path)
    found = json.loads((run.path / "benchmark.json").read_text())
    entries = found["benchmarks"]
    makespans = {
        entry["name"]: entry["extra_info"]["makespan_s"]
        for entry in entries
        if entry["name"].endswith("[ultra]") and "latency" not in entry["name"]
    }
    # One second of phase53 alone, one of both phases, three of phase51 alone.
    assert makespans == pytest.approx({"phase51[ultra]": 3.5, "phase53[ultra]": 1.5})
    (whole,) = [
        part
        for part in found["ultrapar"]["runs"][0]["parts"]
        if (part["suite"], part["model"]) == (None, None)
    ]
    assert (whole["n"], whole["makespan_s"]) == (2, pytest.approx(5.0))
    assert not [entry for entry in entries if "bound_s" in entry["extra_info"]]
    names = [entry["fullname"] for entry in entries]
    assert len(set(names)) == len(names)


def test_benchmark_json_of_a_serial_run_has_a_speedup_of_1(run):
    manifest = read_manifest(run.path)
    write_manifest(run.path, msgspec.structs.replace(manifest, mode="serial"))
    compact(run.path)
    content = json.loads((run.path / "benchmark.json").read_text())
    names = [entry["name"] for entry in content["benchmarks"]]
    assert names.count("phase53[serial]") == 1
    extra = content["benchmarks"][0]["extra_info"]
    assert (extra["basis"], extra["speedup"]) == ("full", 1.0)


def test_time_for_the_tables_is_in_summary_and_benchmark(run):
    write_manifest(run.path, msgspec.structs.replace(read_manifest(run.path), ended_at=NOW))
    took_s = compact(run.path).tables_s
    assert took_s is not None
    content = json.loads((run.path / "benchmark.json").read_text())
    assert content["ultrapar"]["runs"][0]["tables_s"] == took_s
    assert content["benchmarks"][0]["extra_info"]["tables_s"] == took_s
