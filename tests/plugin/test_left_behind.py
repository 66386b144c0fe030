"""Files that a killed run leaves behind: the next run and a resume remove them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.plugin.conftest import cases
from tests.running import Running

pytestmark = pytest.mark.slow

SUITE = cases(6)
HELD = """
import pathlib, time

def pytest_runtest_logstart():
    while pathlib.Path("hold").exists():
        time.sleep(0.05)
"""


@pytest.fixture
def temporary(monkeypatch):
    """The folder for temporary files, with a short path."""
    with tempfile.TemporaryDirectory(prefix="u", dir="/tmp") as made:
        monkeypatch.setenv("TMPDIR", made)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(made)


@pytest.mark.parametrize("after", [["-n0", "--ultrapar-resume=latest"], ["-n0"]])
def test_folders_of_a_killed_run_are_swept(project, temporary, after):
    project.suite(SUITE)
    project.pytester.path.joinpath("conftest.py").write_text(HELD)
    hold = project.pytester.path / "hold"
    hold.touch()
    with Running(project.pytester.path, "-n2"):
        assert project.server.wait_for(lambda prompts: len(prompts) == 6, 90)
    directory = project.directory.resolve()
    assert len(list(directory.glob("broker-*")) + list(temporary.glob("ultrapar-broker-*"))) == 1
    # The socket is in the run's directory if its path is short enough, otherwise elsewhere.
    (directory / "broker-abcdefgh").mkdir()
    (directory / "broker-abcdefgh" / "s").touch()
    hold.unlink()
    assert project.run(*after).ret == 0
    assert list(directory.parent.glob("*/broker-*")) == []
    assert list(temporary.glob("ultrapar-broker-*")) == []
