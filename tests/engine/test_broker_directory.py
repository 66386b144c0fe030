"""Directories of killed runs' brokers are removed; directories in use are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_ultrapar.broker import process
from pytest_ultrapar.broker.blocking_client import BlockingBrokerClient
from pytest_ultrapar.broker.process import BrokerDirectory, BrokerProcess, sweep
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.errors import UltraparError
from tests.engine.test_broker_server_process import CONTROLLER, POOL, wait_gone


@pytest.fixture
def short(monkeypatch):
    """A folder with a short path, in place of the system's folder for temporary files."""
    with tempfile.TemporaryDirectory(prefix="u", dir="/tmp") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


def left_behind(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir())


@pytest.mark.slow
def test_directories_of_killed_runs_are_swept_and_directories_of_live_runs_stay(short):
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, short],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with controller:
        assert controller.stdout is not None
        pid = int(controller.stdout.readline().strip("[").split(",")[0])
        live = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(short))
        sweep([short])
        assert len(left_behind(short)) == 2
        # Kill the broker before it can notice that its controller is gone.
        os.kill(pid, signal.SIGSTOP)
        controller.kill()
        controller.wait()
        sweep([short])
        assert len(left_behind(short)) == 2, "its broker is not gone yet"
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)
    sweep([short])
    assert left_behind(short) == [live.path.parent.name]
    client = BlockingBrokerClient(live.path, live.token)
    assert client.status().lanes
    client.close()
    live.stop()
    assert left_behind(short) == []


@pytest.mark.parametrize("holds", [[], ["s"], ["lock", "s"]])
def test_directory_of_a_run_killed_at_any_moment_is_swept(short, holds):
    (short / "broker-abc").mkdir()
    for name in holds:
        (short / "broker-abc" / name).touch()
    sweep([short])
    assert left_behind(short) == []


def test_a_directory_without_a_broker_stays(short):
    (short / "broker-notes").mkdir()
    (short / "broker-notes" / "mine.txt").touch()
    (short / "broker-file").touch()
    (short / "broker-link").symlink_to("broker-notes")
    (short / "broker-gone").symlink_to("nowhere")
    before = left_behind(short)
    sweep([short])
    assert left_behind(short) == before
    assert left_behind(short / "broker-notes") == ["mine.txt"]


def test_a_directory_moved_for_its_long_path_is_swept(short):
    deep = short / ("x" * 100)
    deep.mkdir()
    made = BrokerDirectory.make(deep)
    assert made.path.parent == short
    sweep([])
    assert made.path.is_dir()
    os.close(made.fd)
    sweep([])
    assert not made.path.exists()


def test_directory_that_was_swept_before_it_was_locked_is_made_again(short, monkeypatch):
    lock, made = process._open_lock, []

    def late(path):
        made.append(path)
        if len(made) == 1:
            sweep([short])
        return lock(path)

    monkeypatch.setattr(process, "_open_lock", late)
    directory = BrokerDirectory.make(short)
    assert not made[0].exists()
    assert left_behind(short) == [directory.path.name]
    directory.remove()
    directory.remove()


def test_error_names_a_place_that_cannot_be_used(short, monkeypatch):
    blocked = short / "blocked"
    blocked.touch()
    monkeypatch.setattr(process, "_shared", lambda: [blocked])
    with pytest.raises(UltraparError, match=rf"{blocked}: Not a directory"):
        BrokerDirectory.make(short / ("x" * 100))
