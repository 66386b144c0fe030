"""What `ultrapar` does when nobody can read what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GATE = ("gate", "benchmark.json", "--rule", "speedup>=3")


@pytest.fixture
def folder(tmp_path):
    part = {
        "suite": None,
        "model": None,
        "n": 24,
        "makespan_s": 10.0,
        "serial_s": 60.0,
        "speedup": 6.0,
        "speedup_interval": [5.0, 7.0],
        "basis": "full",
    }
    runs = [{"run_id": "r", "mode": "ultra", "simulated": False, "parts": [part]}]
    (tmp_path / "benchmark.json").write_text(json.dumps({"ultrapar": {"runs": runs}}))
    return tmp_path


def ultrapar(folder, *words, **streams):
    command = [sys.executable, "-m", "pytest_ultrapar.cli", *words]
    return subprocess.run(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False, **streams
    )


def test_readable_output_ends_as_the_rules_say(folder):
    done = ultrapar(folder, *GATE, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pass" in done.stdout


def test_reader_that_is_gone_ends_it_quietly(folder):
    read, write = os.pipe()
    os.close(read)
    try:
        done = ultrapar(folder, *GATE, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_full_disk_is_said_in_one_sentence(folder):
    with Path("/dev/full").open("wb") as full:
        done = ultrapar(folder, *GATE, stdout=full)
    sentence = "ultrapar: error: cannot write to stdout: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, sentence)


def test_closed_stdout_is_said_in_one_sentence(folder):
    done = ultrapar(folder, *GATE, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (4, "ultrapar: error: stdout is closed\n")
