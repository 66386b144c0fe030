"""Measured commands, their environment, and the report about them."""

from __future__ import annotations

import sys
import time

import pytest

from benchmarks.overhead.command import (
    Checkout,
    measured_environment,
)
from benchmarks.overhead.comparison import measurement_of
from benchmarks.overhead.measurement import Measurement, Options, compare, lines
from benchmarks.overhead.workload import WIDE

HERE = Checkout({})
BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_run_counts_the_cpu_of_grandchildren():
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    started_s = time.monotonic()
    cost = HERE.run([sys.executable, "-c", inner])
    assert cost.cpu_s >= 0.2
    assert 0.0 < cost.wall_s <= time.monotonic() - started_s


@pytest.mark.parametrize("suite", ["benchmarks/overhead", "bench_suites/overhead"])
def test_suite_of_another_checkout_is_found_in_either_folder(tmp_path, suite):
    (tmp_path / suite).mkdir(parents=True)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {tmp_path}/pytest_ultrapar/__init__.py\n")
    python.chmod(0o755)
    found = HERE.of_python(python)
    assert (found.folder, found.suite, found.python) == (tmp_path, suite, str(python))


def test_environment_contains_no_variable_that_changes_a_run(monkeypatch):
    changing = ("MAX_WORKERS", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE", "RATE_MODE")
    for name in changing:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", "here")
    with measured_environment() as environment:
        assert not environment.keys() & set(changing)
        assert environment["PYTHONPATH"] == "here"
        assert environment["PYTHONPYCACHEPREFIX"]


def measured(**figures):
    return {
        "efficiency": 0.9,
        "peak_in_flight": 300,
        "cpu_ms_per_case": 1.0,
        "n_429": 0,
    } | figures


def test_comparison_shows_medians_ranges_and_verdicts():
    rounds = [
        {"-n 0": measured(efficiency=0.5), "raw": measured()},
        {"-n 0": measured(efficiency=0.7), "raw": measured()},
        {"-n 0": measured(efficiency=0.6), "raw": measured()},
    ]
    text = "\n".join(lines(measurement_of(WIDE), rounds, Options(HERE, pinned=True)))
    assert "n = 3000" in text
    assert "0.600 [0.500-0.700]" in text
    verdicts = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["-n 0: efficiency", "0.6", ">= 0.8", "NOT met"] in verdicts
    assert ["-n 0: cpu_ms_per_case", "1", "<= 1.35", "met"] in verdicts
    assert "-n 2" not in text


def test_checkouts_take_turns_and_each_begins_equally_often():
    before = Checkout({}, python="before")
    asked = []

    def one_round(options):
        asked.append((options.checkout.python, options.cases))
        n = 1.0 if options.checkout is before else 2.0
        return {"-n 0": {"wall_s": n + len(asked) / 1000, "only": n}, options.checkout.python: {}}

    options = Options(Checkout({}, python="after"), runs=4, before=before)
    said, rounds = compare(Measurement(one_round, lambda _: ""), options)
    assert [python for python, cases in asked if cases is None] == [
        *("before", "after", "after", "before"),
        *("before", "after", "after", "before"),
    ]
    assert [python for python, cases in asked[:2]] == ["before", "after"]
    assert len(rounds) == 4
    assert [line.split("|")[-2].strip() for line in said[-2:]] == ["more", "more"]
