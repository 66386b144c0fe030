"""The lock file in a run's directory. It names the run, and the last process that held the lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.system.files import NOT_THAT_JSON, read_file

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "run.lock"


class Holder(msgspec.Struct, frozen=True):
    """The content of the lock file."""

    run_id: str
    pid: int


def read_holder(path: Path) -> Holder | None:
    """The content of the lock file in a run's directory; None if it is missing or unreadable."""
    try:
        return msgspec.json.decode(read_file(path / LOCK_NAME), type=Holder)
    except (OSError, *NOT_THAT_JSON):
        return None


def write_holder(lock_fd: int, run_id: str) -> None:
    """Record in an open lock file that this process holds the lock of this run.

    Raises:
        OSError: The file cannot be written.
    """
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, msgspec.json.encode(Holder(run_id, os.getpid())) + b"\n", 0)


def mark_as_run(path: Path, run_id: str) -> None:
    """Mark a directory as a run. Call this last, when the directory contains all files of the run.

    Raises:
        OSError: The lock file already exists, or cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    lock_fd = os.open(path / LOCK_NAME, flags, 0o600)
    try:
        write_holder(lock_fd, run_id)
    finally:
        os.close(lock_fd)


def run_id_of(path: Path) -> str | None:
    """The id of the run in a directory; None if that is not a run's directory or is a symlink."""
    if path.is_symlink() or (path / LOCK_NAME).is_symlink():
        return None
    holder = read_holder(path)
    return None if holder is None else holder.run_id
