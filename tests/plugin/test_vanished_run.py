"""A run directory that is removed or moved away while the run goes on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.light import PYTEST
from tests.plugin.conftest import CANARY

SUITE = """
@pytest.mark.parametrize("prompt", [f"slow 600 {n}" for n in range(40)])
def test_it(answer): pass
"""
UNREADABLE = """
import pathlib, shutil

def pytest_runtest_logstart():
    # Its episode was journaled, and pytest is about to read it.
    shutil.rmtree(pathlib.Path(".ultrapar/latest").resolve(), ignore_errors=True)
"""


def _remove(directory: Path) -> None:
    shutil.rmtree(directory)


def _move(directory: Path) -> None:
    directory.rename(directory.with_name("moved"))


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "vanish"), [("-n0", _remove), ("-n2", _move)])
def test_run_whose_directory_vanishes_stops_before_it_pays_for_more(project, workers, vanish):
    pool = project.pytester.path / "pool.toml"
    pool.write_text(pool.read_text().replace("timeout_s = 5", "timeout_s = 600"))
    project.suite(SUITE)
    with subprocess.Popen(
        [*PYTEST, "--ultrapar-pool=pool.toml", workers],
        cwd=project.pytester.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            assert project.server.wait_for(lambda prompts: len(prompts) == 4, 90)
            vanish(project.directory.resolve())
            # The answers would take ten minutes.
            output, _ = running.communicate(timeout=90)
        finally:
            running.kill()
    assert running.returncode in {1, 2}, output
    # A worker that notices first gives its seats back; the other may use them until it does.
    assert len(project.server.prompts) <= (4 if workers == "-n0" else 8)
    assert "is the run's directory gone?" in output
    assert "INTERNALERROR" not in output, output
    assert "Traceback" not in output, output
    assert CANARY not in output


@pytest.mark.cpu_s(2)
def test_episode_that_cannot_be_read_back_ends_the_run_with_a_sentence(project):
    project.suite(SUITE.replace("slow 600", "say"))
    project.pytester.path.joinpath("conftest.py").write_text(UNREADABLE)
    stopped = project.run("-n0")
    output = stopped.stdout.str() + stopped.stderr.str()
    assert stopped.ret in {1, 2}, output
    assert "cannot read the journal record in w-main-" in output
    assert "Interrupted: pytest-ultrapar: " in output
    assert "INTERNALERROR" not in output, output
    assert "ResultsError" not in output, output
