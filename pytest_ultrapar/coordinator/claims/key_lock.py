"""One file per API key of the host, locked by the run that sends with that key.

`flock` and not a file that says "in use": the kernel ends the lock with the last process that has
the file open, however those end. Those are a run's coordinator and its broker, so that
nobody else begins while leases may still be granted. `fcntl.lockf` would not do: such a lock cannot
be shared with the broker, and ends when any library opens and closes the same file.

**Groups.** Runs that keep a key's limits together without asking each other, such as the shards of
one run, hold its lock jointly (`KeyGroup`). Each member has a file of its own, locked by it alone,
and a shared lock on the key's. What stands in the key's file is written under an exclusive lock
only. So whoever has a shared lock and finds the own group there is in it: nobody can write another
one as long as that lock lives. Whoever gets the exclusive lock is alone, and takes over what the
files of members that are gone say.
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
    """What stands in a key's file: who has it, or had it last.

    Attributes:
        pid: The run's coordinator.
        run: The run's directory; empty for a check of lanes, which has none.
        since: When it took the key; for people.
        free_s: From when on its sends keep nobody waiting, in seconds of the host's monotonic
            clock; None while it runs, and for ever when it was killed. In the file of a key that a
            group has: those of whoever had it before the group.
        group: Of whom it is a member, if of any.
        member: Which one, for people: `shard 2/4`.
    """

    pid: int
    run: str
    since: datetime
    free_s: float | None = None
    group: str = ""
    member: str = ""


class KeyGroup(NamedTuple):
    """Runs that may have keys at the same time, and which of them this is.

    Attributes:
        group_id: The same for all that keep the limits together, and for nobody else.
        member_id: Unique among them, for people: `shard 2/4`. Two of one name exclude each other.
    """

    group_id: str
    member_id: str

    def file_of(self, name: str) -> str:
        """The name of the member's file beside a key's."""
        group, member = (hashlib.sha256(one.encode()).hexdigest()[:16] for one in self)
        return f"{name}{_MEMBER}{group}.{member}"


@dataclass(frozen=True, slots=True)
class Taken:
    """A key that somebody else has; `holder` is None when it does not say who it is.

    Of a group it is the member that took the key first, which may be over.
    """

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
        group: With whom we may have the keys, if with anybody.
        earlier: Who had each key last, by the file's name; keys that nobody had are left out. Of a
            group the same member. It stands there again where a key is given back unused.
        before_s: Of a group: the `Holder.free_s` of whoever had the key before it; 0: nobody.
    """

    def __init__(self, holder: Holder, group: KeyGroup | None = None) -> None:
        if group is not None:
            holder = msgspec.structs.replace(holder, group=group.group_id, member=group.member_id)
        self._holder = holder
        self.group = group
        # Where it stands that we have the key.
        self._fd_of: dict[str, int] = {}
        self._shared: list[int] = []
        self._pid = os.getpid()
        self.earlier: dict[str, Holder] = {}
        self.before_s: dict[str, float | None] = {}

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors of the files."""
        return (*self._fd_of.values(), *self._shared)

    def take(self, name: str, directory: Path) -> Taken | None:
        """Take one more key; returns who has it if it is taken."""
        if self.group is not None:
            return self._join(name, directory, self.group)
        path = directory / name
        fd = _open(path)
        try:
            is_ours = _lock(fd, path)
            found = _read(fd)
            if not is_ours:
                return Taken(name, found)
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

    def _join(self, name: str, directory: Path, group: KeyGroup) -> Taken | None:
        """Take a key as a member of a group; returns who has it if it is taken."""
        path, own_path = directory / name, directory / group.file_of(name)
        own_fd = _open(own_path)
        fd = -1
        try:
            if not _lock(own_fd, own_path):
                return Taken(name, _read(own_fd))
            fd = _open(path)
            if _lock(fd, path):
                self._begin(fd, name, directory, group)
                # Linux drops the one lock before it takes the other: somebody may come between.
            is_shared = _lock(fd, path, fcntl.LOCK_SH)
            said = _read(fd)
            if not is_shared:
                return Taken(name, said)
            # Whoever was alone for a moment may have removed the member's file.
            is_named = _is_at(own_fd, own_path)
            if said is None or said.group != group.group_id or not is_named:
                return Taken(name, said)
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
        """Make a key the group's; nobody has it."""
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
        """Let others have the keys; later calls do nothing, nor do calls in a forked process.

        Args:
            free_s: By the file's name, from when on our sends keep nobody waiting. A key that is
                left out is given back as if it had never been taken.
        """
        if os.getpid() != self._pid:
            # A child that unwinds has closed them: the numbers may be those of a suite's own files.
            return
        for name, fd in self._fd_of.items():
            holder = self.earlier.get(name)
            if name in free_s:
                holder = msgspec.structs.replace(self._holder, free_s=free_s[name])
            _write(fd, holder)
        # The member's own file first: whoever is alone with a key reads what stands there.
        for fd in self.fds:
            _open_fds.discard(fd)
            # No LOCK_UN: it would end the lock for a broker that still has the file.
            os.close(fd)
        self._fd_of.clear()
        self._shared.clear()


def take_all(
    directory: Path, names: Collection[str], holder: Holder, group: KeyGroup | None = None
) -> KeyLocks | Taken:
    """Take all keys or none; never waits.

    They are tried in one order everywhere, so of two runs that want some of the same keys one gets
    all of them.

    Args:
        directory: Of the files.
        names: Of the keys' files.
        holder: Who takes them.
        group: With whom it may have them together; None: with nobody.

    Returns:
        The locks, or the first key that somebody else has.

    Raises:
        ConfigError: The directory is not ours alone, cannot be written, or cannot hold locks.
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
            f"cannot lock API keys in {directory}: {error.strerror}; name a directory on a local "
            f"file system, yours alone, in the environment variable {DIRECTORY_VARIABLE}"
        ) from error
    return locks


def _make_private(directory: Path) -> None:
    advice = (
        f"; fix that, or name another directory in the environment variable {DIRECTORY_VARIABLE}, "
        "the same for all runs of this host"
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
    # Directories for temporary files are swept: who locks a file that was removed in between locks
    # nothing. The next try makes a new one.
    return _is_at(fd, path)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.fstat(fd).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _kept(fd: int) -> int:
    """A descriptor that stays open with its lock."""
    _open_fds.add(fd)
    return fd


def _members(name: str, directory: Path) -> list[Path]:
    """The files of all that had a key as members of a group, or have it."""
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
    """Of several earlier holders the one that keeps others waiting for longest."""
    found = [one for one in holders if one is not None]
    return max(found, key=lambda one: math.inf if one.free_s is None else one.free_s, default=None)


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
