"""One file per API key of the host, locked by the run that sends with that key.

`flock` and not a file that says "in use": the kernel ends the lock with the last process that has
the file open, however those end. Those are a run's coordinator and its broker, so that
nobody else begins while leases may still be granted. `fcntl.lockf` would not do: such a lock cannot
be shared with the broker, and ends when any library opens and closes the same file.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.publish import NOT_THAT_JSON

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DIRECTORY_VARIABLE = "ULTRAPAR_LOCK_DIR"
_open_fds: set[int] = set()


class Holder(msgspec.Struct, frozen=True):
    """What stands in a key's file: who has it, or had it last.

    Attributes:
        pid: The run's coordinator.
        run: The run's directory; empty for a check of lanes, which has none.
        since: When it took the key; for people.
        free_s: From when on its sends keep nobody waiting, in seconds of the host's monotonic
            clock; None while it runs, and for ever when it was killed.
    """

    pid: int
    run: str
    since: datetime
    free_s: float | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A key that somebody else has; `holder` is None when it does not say who it is."""

    name: str
    holder: Holder | None


def lock_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's files stand on this host.

    Not below `TMPDIR` or `XDG_RUNTIME_DIR`: those differ between a login, a cron job and a
    container's shell, and the latter goes away when the user logs out. Runs that look in different
    places would not see each other.
    """
    named = environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named).absolute()
    shared = Path("/tmp")  # noqa: S108 - made private below
    parent = shared if shared.is_dir() else Path(tempfile.gettempdir())
    return parent / f"ultrapar-{os.getuid()}"


class KeyLocks:
    """Some keys, all of them ours until `give_back` or the end of the processes that have `fds`.

    Attributes:
        fds: Descriptors of the files; a process that inherits them holds the keys, too. A process
            that is merely forked closes them, and one that is started does not get them.
        earlier: Who had each key last, by the file's name; keys that nobody had are left out.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._fd_of: dict[str, int] = {}
        self._pid = os.getpid()
        self.earlier: dict[str, Holder] = {}

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors of the files."""
        return tuple(self._fd_of.values())

    def take(self, name: str, directory: Path) -> Taken | None:
        """Take one more key; returns who has it if it is taken."""
        path = directory / name
        fd = _open(path)
        try:
            is_ours = _lock(fd, path)
            found = _read(fd)
            if not is_ours:
                return Taken(name, found)
            if found is not None:
                self.earlier[name] = found
            _write(fd, self._holder)
            self._fd_of[name] = fd
            _open_fds.add(fd)
            fd = -1
        finally:
            if fd >= 0:
                os.close(fd)
        return None

    def give_back(self, free_s: Mapping[str, float]) -> None:
        """Let others have the keys; later calls do nothing, nor do calls in a forked process.

        Args:
            free_s: By the file's name, from when on our sends keep nobody waiting. A key that is
                left out is given back as if it had never been taken.
        """
        if os.getpid() != self._pid:
            # A child that unwinds has closed them: the numbers may be those of a suite's own files.
            return
        for name, fd in self._fd_of.items():
            if name in free_s:
                _write(fd, msgspec.structs.replace(self._holder, free_s=free_s[name]))
            else:
                _write(fd, self.earlier.get(name))
            _open_fds.discard(fd)
            # No LOCK_UN: it would end the lock for a broker that still has the file.
            os.close(fd)
        self._fd_of.clear()


def take_all(directory: Path, names: Collection[str], holder: Holder) -> KeyLocks | Taken:
    """Take all keys or none; never waits.

    They are tried in one order everywhere, so of two runs that want some of the same keys one gets
    all of them.

    Returns:
        The locks, or the first key that somebody else has.

    Raises:
        ConfigError: The directory is not ours alone, cannot be written, or cannot hold locks.
    """
    if names:
        _make_private(directory)
    locks = KeyLocks(holder)
    try:
        for name in sorted(names):
            taken = locks.take(name, directory)
            if taken is not None:
                locks.give_back({})
                return taken
    except OSError as error:
        locks.give_back({})
        msg = (
            f"cannot lock API keys in {directory}: {error.strerror}; name a directory on a local "
            f"file system, yours alone, in the environment variable {DIRECTORY_VARIABLE}"
        )
        raise ConfigError(msg) from error
    return locks


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        why = error.strerror
    else:
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if is_ours and not found.st_mode & 0o077:
            return
        why = "it must be a directory of yours with mode 0700, and no link"
    msg = (
        f"cannot lock API keys in {directory}: {why}; fix that, or name another directory in the "
        f"environment variable {DIRECTORY_VARIABLE}, the same for all runs of this host"
    )
    raise ConfigError(msg)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _lock(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # Directories for temporary files are swept: who locks a file that was removed in between locks
    # nothing. The next try makes a new one.
    return path.exists() and os.fstat(fd).st_ino == path.stat().st_ino


def _read(fd: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(fd, 65_536, 0), type=Holder)
    except NOT_THAT_JSON:  # nobody had it yet, or somebody is writing now
        return None


def _write(fd: int, holder: Holder | None) -> None:
    said = b"" if holder is None else msgspec.json.encode(holder) + b"\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, said, 0)


def _close_inherited() -> None:
    for fd in _open_fds:
        os.close(fd)
    _open_fds.clear()


# A suite's own child, forked by multiprocessing, may outlive the run and must not keep its keys.
os.register_at_fork(after_in_child=_close_inherited)
