"""The private directory of a broker's socket, and those that killed runs have left behind.

Who uses a directory holds a lock on a file in it; the kernel ends the lock with the last process
that has the file open, however those end. A directory that nobody has locked may be removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pytest_ultrapar.errors import UltraparError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PATH_BYTES = 100
"""A Unix socket's path ends at 108 bytes on Linux and at 104 on BSD, the closing zero included."""
SOCKET_NAME = "s"
STDERR_NAME = "stderr"
_LOCK_NAME = "lock"
_IN_RUN = "broker-"
_ELSEWHERE = "ultrapar-broker-"
"""Where others have files, too, the name says whose it is."""


class BrokerDirectory:
    """A new directory with mode 0700 whose socket has a path that is short enough.

    Attributes:
        path: Where it is.
        fd: The lock. A process that inherits it uses the directory, too.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    @classmethod
    def make(cls, run: Path) -> Self:
        """Make one, below the run's directory if that is short enough and can be written.

        Args:
            run: The run's directory.

        Raises:
            UltraparError: There is no place for it.
        """
        said = ""
        for parent, prefix in ((run, _IN_RUN), *((each, _ELSEWHERE) for each in _shared())):
            if len(os.fsencode(parent.resolve() / f"{prefix}xxxxxxxx/{SOCKET_NAME}")) > (
                MAX_PATH_BYTES
            ):
                said = said or f"{parent} is too long"
                continue
            try:
                return cls(*_locked(parent.resolve(), prefix))
            except OSError as error:
                said = f"{parent}: {error.strerror}"
        msg = (
            f"no directory for the broker's socket, whose path must have at most {MAX_PATH_BYTES} "
            f"bytes ({said}); name one in the environment variable TMPDIR"
        )
        raise UltraparError(msg)

    def remove(self) -> None:
        """Remove it with all that it holds; later calls do nothing."""
        if self.fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self.fd)
        self.fd = -1


def sweep(runs: Iterable[Path]) -> None:
    """Remove the directories of brokers whose processes are all gone.

    Args:
        runs: Directories of runs to look in; the system's for temporary files are swept, too.
    """
    found = [each for run in runs for each in run.glob(f"{_IN_RUN}*")]
    found += [each for parent in _shared() for each in parent.glob(f"{_ELSEWHERE}*")]
    for path in found:
        # Some are being used, or removed, or somebody else's: they stay.
        with contextlib.suppress(OSError):
            _remove_if_left(path)


def _shared() -> list[Path]:
    return list(dict.fromkeys([Path(tempfile.gettempdir()), Path("/tmp")]))  # noqa: S108


def _locked(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        # mkdtemp makes it ours alone, wherever it is.
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            fd = _open_lock(path)
        except FileNotFoundError:
            continue
        try:
            if _lock(fd) and os.path.samestat((path / _LOCK_NAME).stat(), os.fstat(fd)):
                return path, fd
        except FileNotFoundError:
            pass
        # Another run took it for one that was left, before it was locked.
        os.close(fd)


def _remove_if_left(path: Path) -> None:
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        return
    fd = _open_lock(path)
    try:
        if _lock(fd):
            # Only what a broker's directory holds: in any other one there is more, and it stays.
            for name in (SOCKET_NAME, STDERR_NAME, _LOCK_NAME):
                (path / name).unlink(missing_ok=True)
            path.rmdir()
    finally:
        os.close(fd)


def _open_lock(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path / _LOCK_NAME, flags, 0o600)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
