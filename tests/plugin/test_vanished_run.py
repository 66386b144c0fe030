"""A run directory that is removed or moved away during the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugin.conftest import CANARY, cases, said_by
from tests.running import Running

SUITE = cases([f"slow 600 {n}" for n in range(40)])
UNREADABLE = """
import pathlib, shutil

def pytest_runtest_logstart():
    # Its episode is in the journal, and pytest reads it next.
    shutil.rmtree(pathlib.Path(".ultrapar/latest").resolve(), ignore_errors=True)
"""


def _remove(directory: Path) -> None:
    shutil.rmtree(directory)


def _move(directory: Path) -> None:
    directory.rename(directory.with_name("moved"))


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "vanish"), [("-n0", _remove), ("-n2", _move)])
def test_run_whose_directory_vanishes_stops_sending_requests(project, workers, vanish):
    project.write_pool(timeout_s=600)
    project.suite(SUITE)
    with Running(project.pytester.path, workers) as running:
        assert project.server.wait_for(lambda prompts: len(prompts) == 4, 90)
        vanish(project.directory.resolve())
        # The answers would take ten minutes.
        code, output = running.wait(90)
    assert code in {1, 2}, output
    # A worker that notices first returns its seats; the other may use them until it notices, too.
    assert len(project.server.prompts) <= (4 if workers == "-n0" else 8)
    assert "was the run's directory removed?" in output
    assert "INTERNALERROR" not in output, output
    assert "Traceback" not in output, output
    assert CANARY not in output


@pytest.mark.cpu_s(2)
def test_episode_that_cannot_be_read_back_ends_the_run_with_one_sentence(project):
    project.suite(SUITE.replace("slow 600", "say"))
    project.pytester.path.joinpath("conftest.py").write_text(UNREADABLE)
    stopped = project.run("-n0")
    output = said_by(stopped, 1, 2)
    assert "cannot read the journal record in w-main-" in output
    assert "Interrupted: pytest-ultrapar: " in output
    assert "ResultsError" not in output, output
