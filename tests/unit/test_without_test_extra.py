"""README's commands in the repository's root need no more than `pip install -e .`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.compare.bench.merged import merged_benchmark
from tests.unit.two_runs import ultra_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def in_root(tmp_path):
    """Run a program in the root of the repository as if hypothesis were not installed."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "hypothesis.py").write_text("raise ModuleNotFoundError(__name__, name=__name__)\n")

    def call(program, *words):
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(hidden), "COLUMNS": "200", "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "hypothesis" not in done.stdout + done.stderr
        return done

    return call


def test_benchmark_file_is_compared(in_root, tmp_path):
    path = tmp_path / "benchmark.json"
    path.write_bytes(msgspec.json.encode(merged_benchmark([ultra_run(tmp_path / "ultra")])))
    done = in_root("pytest-benchmark", "compare", str(path), "--columns=mean")
    assert done.returncode == 0, done.stderr
    assert "phase53[ultra]" in done.stdout


def test_option_of_a_suite_without_a_value_is_refused(in_root):
    done = in_root("pytest", "bench_suites/phase53", "--task-type", "", "-p", "no:cacheprovider")
    assert done.returncode == 4
    assert "--task-type" in done.stderr
