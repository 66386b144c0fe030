"""Files that name the holder of a key, with real locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from pytest_ultrapar.coordinator.keys.key_lock_file import (
    Holder,
    KeyInUse,
    KeyLocks,
    lock_directory,
    take_all,
)
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.keys import key_identity

SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ME, OTHER = Holder(1, "/mine", SINCE), Holder(2, "/other", SINCE)
URL, SECRET = "https://api.example.com/v1", "sk-canary-4f9a1c77e2b05d"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "locks"


def taken(directory, names, holder=ME) -> KeyLocks:
    locks = take_all(directory, names, holder)
    assert isinstance(locks, KeyLocks)
    return locks


def test_lock_files_contain_nothing_of_a_secret(directory):
    locks = taken(directory, [key_identity(URL, SECRET)])
    (file,) = directory.iterdir()
    assert SECRET[:8] not in file.name + file.read_text()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    locks.give_back({})


def test_second_run_gets_no_key_if_one_of_its_keys_is_taken(directory):
    first = taken(directory, ["b"])
    assert take_all(directory, ["a", "b", "c"], OTHER) == KeyInUse("b", ME)
    alone = taken(directory, ["a", "c"])
    first.give_back({})
    alone.give_back({})
    taken(directory, ["a", "b", "c"], OTHER).give_back({})


def test_later_run_learns_when_earlier_sends_no_longer_count(directory):
    first = taken(directory, ["a", "b"])
    assert first.earlier == {}
    first.give_back({"a": 12.5})
    second = taken(directory, ["a", "b"], OTHER)
    assert second.earlier == {"a": Holder(1, "/mine", SINCE, 12.5)}
    second.give_back({})
    third = taken(directory, ["a"])
    assert third.earlier == {"a": Holder(1, "/mine", SINCE, 12.5)}
    third.give_back({})


def test_second_release_does_not_release_the_lock_of_another_run(directory):
    first = taken(directory, ["a"])
    first.give_back({})
    second = taken(directory, ["a"], OTHER)
    first.give_back({"a": 1.0})
    assert take_all(directory, ["a"], ME) == KeyInUse("a", OTHER)
    second.give_back({})


def test_deleted_lock_file_does_not_stop_the_next_run(directory):
    first = taken(directory, ["a"])
    (directory / "a").unlink()
    second = taken(directory, ["a"], OTHER)
    assert take_all(directory, ["a"], ME) == KeyInUse("a", OTHER)
    second.give_back({})
    first.give_back({})


def test_directory_that_others_can_use_or_a_link_is_refused(directory, tmp_path):
    directory.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match=r"cannot lock API keys in .*/locks: .*mode 0700.*"):
        take_all(directory, ["a"], ME)
    link = tmp_path / "link"
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    link.symlink_to(private)
    with pytest.raises(ConfigError, match="not a link"):
        take_all(link, ["a"], ME)
    (private / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="ULTRAPAR_LOCK_DIR"):
        take_all(private, ["a"], ME)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("where", ["file/locks", "/proc/locks"])
def test_unwritable_directory_is_named(tmp_path, where):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot lock API keys in .*/locks: [A-Z].*"):
        take_all(tmp_path / where, ["a"], ME)


def test_file_system_without_locks_is_named(directory, monkeypatch):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(
        ConfigError,
        match="Function not implemented; set ULTRAPAR_LOCK_DIR to a directory on a local",
    ):
        take_all(directory, ["a"], ME)


HOLD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from pytest_ultrapar.coordinator.keys.key_lock_file import Holder, take_all
locks = take_all(Path(sys.argv[1]), ["a"], Holder(7, "/run", datetime.now(UTC)))
"""
READY = 'print("ready", flush=True)\n'


def holding(directory, script) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD + script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the process. Its children live until `end`, because they share its input."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def end(process: subprocess.Popen[str]) -> None:
    """Close the shared input, and wait until the process and its children close the output."""
    process.communicate()


CHILD = """
import os, subprocess
if {forked}:
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
else:
    subprocess.Popen([sys.executable, "-c", "input()"], pass_fds={inherited})
{ready}sys.stdin.read()
"""


def test_lock_outlives_a_killed_process_in_the_child_that_inherits_it(directory):
    script = CHILD.format(forked=False, inherited="locks.fds", ready=READY)
    process = holding(directory, script)
    kill(process)
    assert isinstance(take_all(directory, ["a"], ME), KeyInUse)
    end(process)
    taken(directory, ["a"]).give_back({})


@pytest.mark.parametrize("forked", [True, False])
def test_lock_does_not_stay_with_other_children(directory, forked):
    process = holding(directory, CHILD.format(forked=forked, inherited="()", ready=READY))
    assert isinstance(take_all(directory, ["a"], ME), KeyInUse)
    kill(process)
    # A child that was just forked releases the lock as soon as it runs.
    until_s = time.monotonic() + 60.0
    while isinstance(found := take_all(directory, ["a"], ME), KeyInUse):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    found.give_back({})
    end(process)


UNWINDS = """
import os
(fd,) = locks.fds
if os.fork() == 0:
    users = os.open(sys.argv[1] + "/users", os.O_RDWR | os.O_CREAT)
    assert users == fd
    os.write(users, b"what a suite wrote")
    locks.give_back({"a": 1.0})
    os.write(users, b", and more")
    os._exit(0)
_, status = os.wait()
print("ready", status, flush=True)
sys.stdin.read()
"""


def test_forked_child_releases_no_lock_and_keeps_its_own_files(directory):
    process = holding(directory, UNWINDS)
    assert (directory / "users").read_text() == "what a suite wrote, and more"
    assert take_all(directory, ["a"], ME).holder.pid == 7
    kill(process)
    end(process)


def test_lock_directory_does_not_depend_on_the_shell():
    here = lock_directory({})
    assert here == lock_directory({"TMPDIR": "/var/tmp", "XDG_RUNTIME_DIR": "/run/user/1"})
    assert here.name == f"ultrapar-{os.getuid()}"
    assert str(lock_directory({"ULTRAPAR_LOCK_DIR": "/srv/locks"})) == "/srv/locks"
