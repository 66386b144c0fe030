"""The lock file of a run's directory: which run the directory belongs to, and who had it last."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.system.files import NOT_THAT_JSON, read_file

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "run.lock"


class Holder(msgspec.Struct, frozen=True):
    """What stands in the lock file."""

    run_id: str
    pid: int


def read_holder(path: Path) -> Holder | None:
    """What the lock of a run's directory says; None where there is none that can be read."""
    try:
        return msgspec.json.decode(read_file(path / LOCK_NAME), type=Holder)
    except (OSError, *NOT_THAT_JSON):
        return None


def write_holder(lock_fd: int, run_id: str) -> None:
    """Say in an open lock file that the run is this process's.

    Raises:
        OSError: It cannot be written.
    """
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, msgspec.json.encode(Holder(run_id, os.getpid())) + b"\n", 0)


def mark_as_run(path: Path, run_id: str) -> None:
    """Let a directory that holds all files of a run be known as one; the last step of making it.

    Raises:
        OSError: It cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    lock_fd = os.open(path / LOCK_NAME, flags, 0o600)
    try:
        write_holder(lock_fd, run_id)
    finally:
        os.close(lock_fd)


def run_id_of(path: Path) -> str | None:
    """Id of the run that a directory belongs to; None where it is none, or a symbolic link."""
    if path.is_symlink() or (path / LOCK_NAME).is_symlink():
        return None
    holder = read_holder(path)
    return None if holder is None else holder.run_id
