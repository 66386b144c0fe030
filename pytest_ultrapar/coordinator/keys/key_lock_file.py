"""One file per API key on each machine, locked by the run that sends requests with that key.

The lock is taken with `flock`; a file with the text "in use" would not be enough. Only the run's
coordinator and its broker have the file open. The kernel releases the lock when both have ended,
even if they are killed. So no other run gets the key while the broker may still grant leases.
`fcntl.lockf` does not work here. Its lock cannot be shared with the broker, and is lost as soon as
any library opens and closes the same file.

**Groups.** Some runs, such as the shards of one run, share a key's limits without communicating.
They hold the key's lock together (`KeyGroup`). Each member has an exclusive lock on a file of its
own and a shared lock on the key's file. A run writes to the key's file only while its lock on that
file is exclusive. While any run has the shared lock, no run can write another group into the file.
Therefore a run is a member if it has the shared lock and the key's file names its group. A run that
gets the exclusive lock is the only holder. It reads the files that earlier members have left, to
find out how long it must wait, and then removes these files.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.system.files import NOT_THAT_JSON, cannot, check_private

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

DIRECTORY_VARIABLE = "ULTRAPAR_LOCK_DIR"
_MEMBER = ".member-"
_open_fds: set[int] = set()


class Holder(msgspec.Struct, frozen=True):
    """The content of a key's file: the run that holds the key, or that held it last.

    Attributes:
        pid: Process id of the run's coordinator.
        run: The run's directory; empty for a check of lanes.
        since: When the run got the key, for messages.
        free_s: The time from which other runs need not wait for this run's requests, in seconds on
            the machine's monotonic clock. None until the run ends; it stays None if the run is
            killed. If a group holds the key, the key's file contains the value of the run that held
            the key before the group.
        group: The id of the run's group; empty if it has no group.
        member: The member's name for messages, such as `shard 2/4`.
    """

    pid: int
    run: str
    since: datetime
    free_s: float | None = None
    group: str = ""
    member: str = ""


class KeyGroup(NamedTuple):
    """A group of runs that may hold keys at the same time, and this run's name in the group.

    Attributes:
        group_id: The same for all runs that share the limits, and different for all other runs.
        member_id: This run's unique name in the group, such as `shard 2/4`. Two members with the
            same name cannot hold a key at the same time.
    """

    group_id: str
    member_id: str

    def file_of(self, name: str) -> str:
        """The name of this member's own file, in the same directory as the key's file."""
        group, member = (hashlib.sha256(one.encode()).hexdigest()[:16] for one in self)
        return f"{name}{_MEMBER}{group}.{member}"


@dataclass(frozen=True, slots=True)
class KeyInUse:
    """A key that another run holds; `holder` is None if the key's file does not name the run.

    If a group holds the key, `holder` is the member that got it first. That member may be gone.
    """

    name: str
    holder: Holder | None


def lock_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory for this user's lock files on this machine.

    Unless `ULTRAPAR_LOCK_DIR` names it, it is in `/tmp`, not in `TMPDIR` or `XDG_RUNTIME_DIR`. The
    values of these variables differ between a login, a cron job and a shell in a container. Also,
    `XDG_RUNTIME_DIR` is removed when the user logs out. Runs that used different directories would
    not see each other's locks. `TMPDIR` may be used only if there is no `/tmp`.
    """
    named = environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named).absolute()
    shared = Path("/tmp")  # noqa: S108 - made private below
    parent = shared if shared.is_dir() else Path(tempfile.gettempdir())
    return parent / f"ultrapar-{os.getuid()}"


class KeyLocks:
    """Keys that this run holds until `give_back`, or until all processes with its `fds` have ended.

    Attributes:
        fds: Descriptors of the files. A process that inherits them also holds the keys. A forked
            process closes them, so only a new process to which they are passed inherits them.
        group: The group that shares the keys; None if no other run shares them.
        earlier: The previous holder of each key, by the name of the file. Keys without a previous
            holder are left out. In a group, the previous holder is the earlier member with the same
            name. If a key was not used, `give_back` writes its previous holder back into the file.
        before_s: In a group, the `Holder.free_s` of each key's holder before the group, by the name
            of the file; 0 if no run held the key.
    """

    def __init__(self, holder: Holder, group: KeyGroup | None = None) -> None:
        if group is not None:
            holder = msgspec.structs.replace(holder, group=group.group_id, member=group.member_id)
        self._holder = holder
        self.group = group
        # For each key, the descriptor of the file that names this run as the holder.
        self._fd_of: dict[str, int] = {}
        self._shared: list[int] = []
        self._pid = os.getpid()
        self.earlier: dict[str, Holder] = {}
        self.before_s: dict[str, float | None] = {}

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors of the files."""
        return (*self._fd_of.values(), *self._shared)

    def take(self, name: str, directory: Path) -> KeyInUse | None:
        """Lock one more key; if another run holds it, return that run."""
        if self.group is not None:
            return self._join(name, directory, self.group)
        path = directory / name
        fd = _open(path)
        try:
            is_ours = _lock(fd, path)
            found = _read(fd)
            if not is_ours:
                return KeyInUse(name, found)
            members = _members(name, directory)
            found = _latest([found, *map(_read_file, members)])
            if found is not None:
                self.earlier[name] = found
            _write(fd, self._holder)
            for member in members:
                member.unlink(missing_ok=True)
            self._fd_of[name], fd = _kept(fd), -1
        finally:
            if fd >= 0:
                os.close(fd)
        return None

    def _join(self, name: str, directory: Path, group: KeyGroup) -> KeyInUse | None:
        """Lock a key as a member of a group; if another run prevents this, return that run."""
        path, own_path = directory / name, directory / group.file_of(name)
        own_fd = _open(own_path)
        fd = -1
        try:
            if not _lock(own_fd, own_path):
                return KeyInUse(name, _read(own_fd))
            fd = _open(path)
            if _lock(fd, path):
                self._begin(fd, name, directory, group)
                # To change this lock into a shared one, Linux releases it first, so another run may
                # get the key in between.
            is_shared = _lock(fd, path, fcntl.LOCK_SH)
            said = _read(fd)
            if not is_shared:
                return KeyInUse(name, said)
            # A run that held the key alone for a moment may have removed this member's file.
            is_named = _is_at(own_fd, own_path)
            if said is None or said.group != group.group_id or not is_named:
                return KeyInUse(name, said)
            own = _read(own_fd)
            if own is not None:
                self.earlier[name] = own
            self.before_s[name] = said.free_s
            _write(own_fd, self._holder)
            self._shared.append(_kept(fd))
            self._fd_of[name] = _kept(own_fd)
            fd = own_fd = -1
        finally:
            for one in (fd, own_fd):
                if one >= 0:
                    os.close(one)
        return None

    def _begin(self, fd: int, name: str, directory: Path, group: KeyGroup) -> None:
        """Record in a free key's file that the group now holds the key."""
        said = _read(fd)
        if said is not None and said.group == group.group_id:
            return
        own = directory / group.file_of(name)
        members = [one for one in _members(name, directory) if one != own]
        found = _latest([said, *map(_read_file, members)])
        free_s = 0.0 if found is None else found.free_s
        _write(fd, msgspec.structs.replace(self._holder, free_s=free_s))
        for member in members:
            member.unlink(missing_ok=True)

    def give_back(self, free_s: Mapping[str, float]) -> None:
        """Release the keys. Later calls, and calls in a forked process, have no effect.

        Args:
            free_s: For each key, by the name of its file, the time from which other runs need not
                wait for this run's requests. If a key is left out, its file looks afterwards as if
                this run had never had the key.
        """
        if os.getpid() != self._pid:
            # This is a forked child, which has closed the descriptors. Their numbers may now belong
            # to files of the suite.
            return
        for name, fd in self._fd_of.items():
            holder = self.earlier.get(name)
            if name in free_s:
                holder = msgspec.structs.replace(self._holder, free_s=free_s[name])
            _write(fd, holder)
        # Close the member's own file before the key's file: the next run that holds the key alone
        # reads the member's file.
        for fd in self.fds:
            _open_fds.discard(fd)
            # Do not use LOCK_UN: it would also release the lock for a broker that still has the
            # file open.
            os.close(fd)
        self._fd_of.clear()
        self._shared.clear()


def take_all(
    directory: Path, names: Collection[str], holder: Holder, group: KeyGroup | None = None
) -> KeyLocks | KeyInUse:
    """Lock all keys or none, without waiting.

    All runs try the keys in the same order. Therefore, if two runs need some of the same keys, one
    of the runs gets all of its keys.

    Args:
        directory: The directory that contains the keys' files.
        names: Names of the keys' files.
        holder: The run that locks the keys.
        group: The group that may share the keys; None if no other run may share them.

    Returns:
        The locks, or the first key that another run holds.

    Raises:
        ConfigError: Other users can write to the directory, or this run cannot write or lock files
            there.
    """
    if names:
        _make_private(directory)
    locks = KeyLocks(holder, group)
    try:
        for name in sorted(names):
            taken = locks.take(name, directory)
            if taken is not None:
                locks.give_back({})
                return taken
    except OSError as error:
        locks.give_back({})
        raise ConfigError(
            f"cannot lock API keys in {directory}: {error.strerror}; set {DIRECTORY_VARIABLE} to a "
            "directory on a local file system that only you can use"
        ) from error
    return locks


def _make_private(directory: Path) -> None:
    advice = (
        f"; fix that, or set {DIRECTORY_VARIABLE} to another directory, the same one for all runs "
        "on this machine"
    )
    with cannot(f"lock API keys in {directory}", advice, error=ConfigError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(directory)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _lock(fd: int, path: Path, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # The system may clean up its temporary directory. A lock on a removed file is useless, so treat
    # it as a failure; the next attempt creates a new file.
    return _is_at(fd, path)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.fstat(fd).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _kept(fd: int) -> int:
    """Register an open descriptor, so that forked processes close it, and return it."""
    _open_fds.add(fd)
    return fd


def _members(name: str, directory: Path) -> list[Path]:
    """The files of all group members that hold this key or have held it."""
    return sorted(directory.glob(f"{name}{_MEMBER}*"))


def _read_file(path: Path) -> Holder | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        return _read(fd)
    finally:
        os.close(fd)


def _latest(holders: Iterable[Holder | None]) -> Holder | None:
    """The earlier holder for whose requests other runs must wait the longest."""
    found = [one for one in holders if one is not None]
    return max(found, key=lambda one: math.inf if one.free_s is None else one.free_s, default=None)


def _read(fd: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(fd, 65_536, 0), type=Holder)
    except NOT_THAT_JSON:  # no run has had the key yet, or a run is writing the file now
        return None


def _write(fd: int, holder: Holder | None) -> None:
    said = b"" if holder is None else msgspec.json.encode(holder) + b"\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, said, 0)


def _close_inherited() -> None:
    for fd in _open_fds:
        os.close(fd)
    _open_fds.clear()


# A child process that the suite forks with multiprocessing may outlive the run. It must not keep
# the keys locked.
os.register_at_fork(after_in_child=_close_inherited)
