"""The series in benchmark files: their names, and the same speed-ups for every reader."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.compare.bench.merged import merged_benchmark
from tests.unit.two_runs import run_of

N = 24
SEATS = 4


def one_by_one(n=N, *, seconds=1.0, gap_s=0.25):
    """Consecutive spans with pauses between them. Every third span is twice as long."""
    spans, now_s = [], 0.0
    for number in range(n):
        end_s = now_s + seconds * (2 if number % 3 == 0 else 1)
        spans.append((now_s, end_s))
        now_s = end_s + gap_s
    return spans


def on_seats(n=N, *, n_models=2):
    """The same durations on four seats per model. A free seat takes the next case immediately."""
    free_s = [[0.0] * SEATS for _ in range(n_models)]
    spans = []
    for number in range(n):
        own = free_s[number % n_models]
        seat = own.index(min(own))
        start_s = own[seat]
        own[seat] += 2.0 if number % 3 == 0 else 1.0
        spans.append((start_s, own[seat]))
    return spans


def bench_of(folder, **fields):
    return [
        run_of(folder / "serial", "serial", one_by_one(), **fields),
        run_of(folder / "rotate", "rotate", one_by_one(), **fields),
        run_of(folder / "ultra", "ultra", on_seats(), **fields),
    ]


def series(runs):
    found = merged_benchmark(runs)["benchmarks"]
    return {entry["fullname"]: entry for entry in found}


def test_serial_times_of_the_models_add_up_to_the_serial_run(tmp_path):
    entries = series(bench_of(tmp_path))
    whole = entries["phase53[serial]"]["extra_info"]
    models = [entries[f"phase53[serial-{model}]"]["extra_info"] for model in ("m1", "m2")]
    # 32 s of cases, and 23 pauses of a quarter of a second.
    assert whole["makespan_s"] == pytest.approx(37.75)
    assert sum(one["makespan_s"] for one in models) == pytest.approx(37.75)
    # Each model has 16 s of its own cases, and the pause before each case but the first.
    assert [one["makespan_s"] for one in models] == pytest.approx([16 + 2.75, 16 + 3.0])
    assert [one["n"] for one in models] == [12, 12]


@pytest.mark.parametrize("suites", [("phase53",), ("phase51", "phase53")])
def test_every_statistic_of_a_series_gives_the_stated_speedup(tmp_path, suites):
    entries = series(bench_of(tmp_path, suites=suites))
    n_seen = 0
    for name, entry in entries.items():
        suite, mode, model = (entry["params"][one] for one in ("suite", "mode", "model"))
        if entry["group"] == "case latency":
            continue
        serial = entries[f"{suite}[serial{f'-{model}' if model else ''}]"]
        for statistic in ("min", "max", "mean", "median", "q1", "q3", "ops"):
            ratio = serial["stats"][statistic] / entry["stats"][statistic]
            if statistic == "ops":
                ratio = 1 / ratio
            assert ratio == pytest.approx(entry["extra_info"]["speedup"], rel=0.02), (
                name,
                statistic,
            )
        assert mode != "rotate" or entry["extra_info"]["speedup"] == pytest.approx(1, rel=0.02)
        n_seen += 1
    assert n_seen == 3 * 3 * len(suites)


@pytest.mark.slow
def test_pytest_benchmark_compare_shows_the_speedups_of_the_file(tmp_path):
    runs = bench_of(tmp_path, suites=("phase51", "phase53"))
    (tmp_path / "merged.json").write_bytes(msgspec.json.encode(merged_benchmark(runs)))
    tool = Path(sys.executable).with_name("pytest-benchmark")
    subprocess.run(
        [tool, "compare", "merged.json", "--csv=table.csv"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    with (tmp_path / "table.csv").open() as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    entries = series(runs)
    for name, entry in entries.items():
        if entry["params"]["mode"] == "serial" or entry["group"] == "case latency":
            continue
        serial = rows[name.replace(f"[{entry['params']['mode']}", "[serial")]
        for column in ("min", "max", "mean", "median"):
            ratio = float(serial[column]) / float(rows[name][column])
            assert ratio == pytest.approx(entry["extra_info"]["speedup"], rel=0.02), (name, column)
        assert (rows[name]["iqr"], rows[name]["rounds"]) == ("0.0", "1")


def test_bench_without_a_serial_run_has_an_estimated_serial_series_per_model(tmp_path):
    entries = series([run_of(tmp_path / "ultra", "ultra", on_seats())])
    for part in ("", "-m1", "-m2"):
        serial, ultra = entries[f"phase53[serial{part}]"], entries[f"phase53[ultra{part}]"]
        ratio = serial["stats"]["median"] / ultra["stats"]["median"]
        assert ratio == pytest.approx(ultra["extra_info"]["speedup"])
        assert serial["extra_info"]["basis"] == "at_most"
