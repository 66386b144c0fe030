"""`ultrapar bench` as users run it, on the simulated provider."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import psutil
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.testing import read_server_log
from tests.light import LIGHT
from tests.plugin.conftest import SUITE, cases
from tests.running import wait_until
from tests.simulated_pool import pool_text

pytestmark = pytest.mark.slow

INSTANCES = 'instances = ["m-1", "m-2", "m-3", "m-4"]\nper_instance = { workers = 1 }'
NUMBERS = SUITE + cases(24, 'grade("solved" if answer == f"echo: {prompt}" else "unsolved")')

MODES = ("serial", "rotate", "ultra")


@pytest.fixture
def folder(tmp_path, outside_xdist):
    tmp_path.joinpath("pool.toml").write_text(pool_text("", 0.05, model=INSTANCES))
    tmp_path.joinpath("test_numbers.py").write_text(NUMBERS)
    return tmp_path


def command(*args):
    own = [sys.executable, "-m", "pytest_ultrapar.cli", "bench"]
    return [*own, "test_numbers.py", "--pool", "pool.toml", *LIGHT, *args]


def bench(folder, *args):
    return subprocess.run(
        command(*args), cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_modes_run_on_the_same_cases_and_are_compared(folder):
    done = bench(folder, "--out", "out", "-n0", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    out = folder / "out"
    report = (out / "report.txt").read_text()
    assert done.stdout.endswith(report)
    table = [line.split() for line in report.splitlines() if line]
    rows = {cells[0]: cells for cells in table if cells[0] in MODES}
    assert [*rows] == ["serial", "rotate", "ultra"]
    assert {row[1] for row in rows.values()} == {"24"}
    assert report.count("the same: all 24 cases have the same grades in both runs") == 2
    in_flight = {
        mode: read_server_log(out / mode / "simulator.jsonl").max_in_flight() for mode in rows
    }
    assert in_flight == {"serial": 1, "rotate": 1, "ultra": 4}
    used = {
        mode: {one.instance for one in read_server_log(out / mode / "simulator.jsonl").requests}
        for mode in rows
    }
    assert {mode: len(own) for mode, own in used.items()} == {"serial": 1, "rotate": 4, "ultra": 4}
    found = json.loads((out / "benchmark.json").read_text())["benchmarks"]
    names = [entry["fullname"] for entry in found]
    assert len(set(names)) == len(names)
    extra = {
        entry["params"]["mode"]: entry["extra_info"]
        for entry in found
        if entry["params"]["model"] is None and "speedup" in entry["extra_info"]
    }
    assert {one["basis"] for one in extra.values()} == {"full"}
    assert extra["serial"]["speedup"] == 1.0
    assert extra["ultra"]["speedup"] > extra["rotate"]["speedup"]
    assert all(one["n"] == 24 for one in extra.values())


def test_failed_tests_set_the_exit_code_and_other_modes_still_run(folder):
    text = NUMBERS + "\ndef test_plain():\n    raise AssertionError('as always')\n"
    folder.joinpath("test_numbers.py").write_text(text)
    done = bench(folder, "--out", "out", "--modes", "ultra,serial")
    assert done.returncode == 1
    assert "ultra ended with exit code 1" in done.stdout
    assert "serial ended with exit code 1" in done.stdout
    assert (
        "answers: ultra and serial: the same: all 24 cases have the same grades in both runs"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["nowhere.py"], 4, "file or directory not found: nowhere.py"),
        (["-k", "nothing"], 5, "deselected"),
        (["--modes", "ultra,phase"], 4, "--ultrapar-mode phase: no conftest or plugin"),
        (["--modes", "ultra", "--ultrapar-model", "x"], 4, "--ultrapar-model 'x' matches no model"),
    ],
)
def test_bench_prints_pytests_refusal_and_sends_nothing(folder, args, code, message):
    done = bench(folder, *args)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not [*folder.glob(".ultrapar/bench-*")]


@pytest.mark.parametrize(
    ("modes", "where", "option"),
    [
        ("ultra", "file", "--ultrapar-baseline"),
        ("serial,ultra", "environment", "--junit-xml"),
        ("ultra", "command line", "--ultrapar-resume"),
        ("ultra", "command line", "--ultrapar-only"),
    ],
)
def test_forbidden_options_are_refused_on_the_command_line_and_in_addopts(
    folder, monkeypatch, modes, where, option
):
    words = {"--ultrapar-baseline": "=3", "--junit-xml": "=x"}.get(option, "=latest")
    more = []
    if where == "file":
        folder.joinpath("pytest.ini").write_text(f"[pytest]\naddopts = {option}{words}\n")
    elif where == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", option + words)
    else:
        more = [option + words]
    done = bench(folder, "--modes", modes, *more)
    said = done.stdout + done.stderr
    assert done.returncode == 4, said
    assert f"{option} cannot be used with ultrapar bench, not even in addopts: " in said
    assert "Traceback" not in said
    assert not [*folder.glob(".ultrapar/bench-*")]


def test_suite_without_cases_is_bad_input(folder):
    folder.joinpath("test_numbers.py").write_text("def test_plain(): pass\n")
    done = bench(folder, "--modes", "ultra")
    assert done.returncode == 4
    assert "no cases: no selected test takes llm or uses a prefetched fixture" in done.stdout
    assert not [*folder.glob(".ultrapar/bench-*")]


def test_interrupted_bench_ends_in_order_and_lists_its_results(folder):
    folder.joinpath("pool.toml").write_text(pool_text("", 0.3, model=INSTANCES))
    running = subprocess.Popen(
        command("--out", "out", "--modes", "ultra,serial", "-v"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    family = []
    watchdog = threading.Timer(90, running.kill)
    watchdog.start()
    try:
        said = ""
        is_serial = False
        for line in running.stdout:
            said += line
            is_serial = is_serial or "mode serial (2 of 2)" in line
            if is_serial and "SOLVED" in line.upper() and not family:
                family = psutil.Process(running.pid).children(recursive=True)
                running.send_signal(signal.SIGINT)
        code = running.wait()
    finally:
        watchdog.cancel()
        running.kill()
        running.wait()
        running.stdout.close()
    assert code == 2, said
    assert family
    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert "serial stopped early (exit code 2): " in said
    assert "24 cases, ultra; seed 0" in said
    assert "Traceback" not in said
    assert (folder / "out" / "report.txt").exists()


def test_runs_of_a_killed_bench_end(folder, workers):
    folder.joinpath("pool.toml").write_text(pool_text("", 2, model=INSTANCES))
    running = subprocess.Popen(
        command("--out", "out", "--modes", "serial", workers), cwd=folder, stdout=subprocess.DEVNULL
    )
    try:
        log = folder / "out" / "serial" / "simulator.jsonl"
        # The third request in serial mode: the first case was graded seconds ago.
        wait_until(
            lambda: log.exists() and log.stat().st_size and len(read_server_log(log).requests) >= 3
        )
        family = psutil.Process(running.pid).children(recursive=True)
        assert len(family) >= 3
    finally:
        running.kill()
        running.wait()
    left = psutil.wait_procs(family, timeout=60)[1]
    for process in left:
        process.kill()
    assert left == []
    rows = pq.read_table(folder / "out" / "serial" / "results.parquet").to_pylist()
    assert {row["outcome"] for row in rows} == {"solved"}
