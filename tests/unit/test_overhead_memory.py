"""From peaks to growth, and which process is which."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench_suites.overhead.command import CommandError
from bench_suites.overhead.memory import growth, peak_kib, peaks_mib, processes_of


def test_growth_is_what_cases_add_to_empty_tests():
    rows = growth(
        "-n 1",
        20_000,
        few={"pytest": 60.0, "gw0": 70.0, "broker": 30.0},
        many={"pytest": 110.0, "gw0": 150.0, "broker": 34.0},
        empty_few={"pytest": 40.0, "gw0": 40.0},
        empty_many={"pytest": 85.0, "gw0": 110.0},
    )
    assert {row.process: row.more_mib for row in rows} == {
        "pytest": 5.0,
        "gw0": 10.0,
        "broker": 4.0,
    }


def test_processes_are_the_command_and_its_children_by_role():
    script = "import sys; held = bytearray(32 << 20); print(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        found = dict(processes_of(os.getpid()))
        peak = peak_kib(child.pid)
        child.communicate()
    assert found[os.getpid()] == "pytest"
    assert found[child.pid] == "worker"
    assert 32 * 1024 < peak < 96 * 1024
    assert peak_kib(child.pid) == 0


def test_peaks_of_a_failed_command_are_no_figures():
    with pytest.raises(CommandError, match=r"(?s)exit code 3.*broken"):
        peaks_mib([sys.executable, "-c", "import sys; print('broken'); sys.exit(3)"], {})
