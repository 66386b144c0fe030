"""A run's own directory: made, locked against a second run, and found again."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.store.cases_file import MANIFEST_NAME, PLAN_NAMES
from pytest_ultrapar.store.clock_stamps import CLOCKS_NAME
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.parts import PARTS_NAME
from pytest_ultrapar.store.recovered import FILE_NAME as RECOVERED_NAME
from pytest_ultrapar.store.run_lock import LOCK_NAME, read_holder, run_id_of, write_holder
from pytest_ultrapar.system.files import NOT_THAT_JSON, cannot, read_file, sweep_temporaries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


DEFAULT_PARENT = Path(".ultrapar")
OUT_OPTION = "--ultrapar-out"
LATEST = "latest"
COMPACT_LOCK_NAME = "compact.lock"
"""Held by who makes the tables: a process of its own that may outlive the run's."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe that has a lock's name is not waited for."""
JOURNAL_NAME = "journal"
SPENDING_FILE = "spending.log"
"""In the run's directory."""
SUMMARY_FILE = "summary.json"
"""Holds the `RunSummary`; written last of all tables, and as a new file each time."""


_UNBEGUN = (*PLAN_NAMES, RECOVERED_NAME, CLOCKS_NAME, MANIFEST_NAME, SPENDING_FILE)
"""What a run leaves, beside lock and journal, that never got as far as its first episode."""


def new_run_id(now: datetime) -> str:
    """`<UTC time>-<six hex digits>`."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


class RunDirectory:
    """The directory of one run, locked from `create` or `open_existing` to `close`.

    The kernel ends the lock with the process, however that ends.

    Attributes:
        path: Absolute.
        run_id: `<UTC time>-<six hex digits>`, kept when the run is resumed.
        journal: Where segments stand; exists.
    """

    def __init__(
        self, path: Path, run_id: str, lock_fd: int, others: frozenset[str] | None = None
    ) -> None:
        """Take over the lock.

        Args:
            path: Absolute.
            run_id: As the attribute.
            lock_fd: Of the locked file.
            others: What stood there before and is not a run's; None: there was no directory.
        """
        self._others = others
        self.path = path
        self.run_id = run_id
        self.journal = path / JOURNAL_NAME
        self._lock_fd = lock_fd

    @classmethod
    def create(
        cls,
        out: Path | None,
        now: datetime,
        *,
        option: str = OUT_OPTION,
        can_be_finished: bool = True,
    ) -> Self:
        """Make and lock the directory of a new run.

        A directory whose run never got as far as its first episode is taken over.

        Args:
            out: The directory itself; None makes a new one in `DEFAULT_PARENT`.
            now: An aware time; names the run.
            option: By which `out` was given, for messages.
            can_be_finished: Whether this kind of run can finish an earlier one.

        Raises:
            ConfigError: The directory cannot be made or written, or `out` is no directory, in use,
                or holds something else or an earlier run.
        """
        run_id = new_run_id(now)
        path = (DEFAULT_PARENT / run_id if out is None else out).absolute()
        with _usable(path, option, option):
            if out is None:
                _make_parent()
            was_there = path.is_dir()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (path / LOCK_NAME).exists() and any(path.iterdir()):
                refuse(
                    f"{option}: {path} is not empty and holds no run;"
                    " name an empty or a new directory"
                )
            others = frozenset(entry.name for entry in path.iterdir())
            others -= {LOCK_NAME, JOURNAL_NAME, *_UNBEGUN}
            lock_fd = _lock(path, option)
            try:
                _refuse_earlier_run(path, option, can_be_finished=can_be_finished)
                _prepare(path, lock_fd, run_id)
            except BaseException:
                os.close(lock_fd)
                raise
        return cls(path, run_id, lock_fd, others if was_there else None)

    @classmethod
    def open_existing(cls, path: Path) -> Self:
        """Lock the directory of an earlier run, to finish it or to grade it again.

        Raises:
            ConfigError: There is no run, it is in use by another process, or it cannot be written.
        """
        path = path.absolute()
        with _usable(path, "--ultrapar-resume"):
            if not (path / LOCK_NAME).is_file():
                refuse(f"{path} holds no run: it has no {LOCK_NAME}")
            lock_fd = _lock(path)
            try:
                holder = read_holder(path)
                run_id = holder.run_id if holder is not None else _named_by_manifest(path)
                _prepare(path, lock_fd, run_id)
            except BaseException:
                os.close(lock_fd)
                raise
        others = frozenset(entry.name for entry in path.iterdir())
        return cls(path, run_id, lock_fd, others)

    def point_latest(self) -> None:
        """Let `latest` point here; once the run has cases to run, and not before.

        A session that ends while it collects would else hide the interrupted run that
        `--ultrapar-resume=latest` is meant for.

        Raises:
            ResultsError: The link cannot be made; the run itself does not need it.
        """
        link = DEFAULT_PARENT / LATEST
        temporary = link.with_name(f".{LATEST}.{os.getpid()}")
        is_there = self.path.parent == DEFAULT_PARENT.absolute()
        with cannot(f"point {link} at {self.path}"):
            _make_parent()
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(self.path.name if is_there else self.path)
            temporary.replace(link)

    def runs_beside(self) -> set[Path]:
        """Directories of all runs beside this one and in `DEFAULT_PARENT`, its own among them."""
        parents = {self.path.parent, DEFAULT_PARENT.absolute()}
        return {lock.parent for each in parents for lock in each.glob(f"*/{LOCK_NAME}")}

    def discard(self) -> None:
        """Remove what the run wrote; for a session that had nothing to run.

        A directory that was there stays, with all that is somebody else's. Idempotent.
        """
        if self._lock_fd < 0:
            return
        with suppress(OSError):
            for entry in self.path.iterdir():
                if self._others is not None and entry.name in self._others:
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
            if self._others is None:
                self.path.rmdir()
        # Last: until then nobody else begins a run here.
        self.close()

    def close(self) -> None:
        """Let others use the directory; later calls do nothing."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd = -1


@contextmanager
def held(run: Path, option: str) -> Iterator[None]:
    """Keep others from writing into an earlier run that is read; it may be where nobody can write.

    Args:
        run: Its directory.
        option: Who reads it, for messages.

    Raises:
        ConfigError: Another process writes into it.
    """
    fd = -1
    with suppress(OSError):
        fd = os.open(run / LOCK_NAME, _READ)
    try:
        if fd >= 0:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                refuse(f"{option}: {run} is in use; wait for its end")
            except OSError:
                pass  # a file system without locks: nobody else has one there either
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def in_use(run: Path) -> bool:
    """Whether another process writes into a run now, as far as its lock tells."""
    try:
        with held(run, ""):
            return False
    except ConfigError:
        return True


def remove_run(run: Path, seen_at: datetime) -> None:
    """Remove the directory of a run and all in it; links are removed, what they lead to is not.

    What is left where this is stopped is still known as a run, and may be removed again.

    Args:
        run: Its directory.
        seen_at: When it was judged; an aware time.

    Raises:
        ConfigError: It is no run, holds another, is used by another process or was since it was
            judged, or it cannot be removed.
    """
    if run_id_of(run) is None:
        refuse(f"{run} is no run directory; it stays")
    flags = _READ | os.O_NOFOLLOW
    fds = []
    with cannot(f"remove {run}", error=ConfigError):
        try:
            # All by this descriptor: nobody can put another directory in its place meanwhile.
            fds.append(folder := os.open(run, flags | os.O_DIRECTORY))
            for name in (LOCK_NAME, COMPACT_LOCK_NAME):
                with suppress(FileNotFoundError):
                    fds.append(os.open(name, flags, dir_fd=folder))
                    fcntl.flock(fds[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Each session writes its process id into the lock.
            if os.stat(LOCK_NAME, dir_fd=folder).st_mtime > seen_at.timestamp():
                refuse(f"{run} was used meanwhile; it stays")
            below = [one.parent for one in run.rglob(LOCK_NAME) if one.parent != run]
            if below:
                refuse(f"{run} holds another run, {below[0]}; it stays")
            _empty(folder)
            os.unlink(LOCK_NAME, dir_fd=folder)
            run.rmdir()
        except BlockingIOError:
            refuse(f"{run} is in use; it stays")
        finally:
            for fd in fds:
                os.close(fd)


def _empty(folder: int) -> None:
    """Remove all that stands in an open directory but the lock by which a run is known."""
    with os.scandir(folder) as entries:
        for entry in [*entries]:
            if entry.name == LOCK_NAME:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=folder)


def unpoint_latest(parent: Path, removed: Collection[Path]) -> None:
    """Remove `latest` in a folder where it points at one of these runs, which are gone.

    Args:
        parent: The folder.
        removed: Absolute.
    """
    link = parent.absolute() / LATEST
    with suppress(OSError):
        if link.is_symlink() and link.parent / link.readlink() in removed:
            link.unlink()


def resolve_run(name: str) -> Path:
    """The directory of an earlier run: `latest`, a path, or a run's id in `DEFAULT_PARENT`.

    Raises:
        ConfigError: There is no such run, or nobody may look for it there.
    """
    if not name:
        refuse(f"an empty name names no run; {_NAME_ONE}")
    in_parent = DEFAULT_PARENT / name
    candidates = [in_parent] if name == LATEST else [Path(name), in_parent]
    with cannot(f"look for the run {name}", error=ConfigError):
        for candidate in candidates:
            if (candidate / LOCK_NAME).is_file():
                return candidate.resolve()
            below = sorted(str(lock.parent) for lock in candidate.glob(f"*/{LOCK_NAME}"))
            if name != LATEST and candidate != DEFAULT_PARENT and below:
                named = ", ".join(below[:8])
                refuse(f"{candidate} is not a run but holds {len(below)}; name one: {named}")
    places = " or ".join(dict.fromkeys(map(str, candidates)))
    raise ConfigError(f"no run found at {places}; {_NAME_ONE}")


_NAME_ONE = f"name a run directory, the id of a run in {DEFAULT_PARENT}, or {LATEST}"


def new_directory(out: Path | None, now: datetime) -> Path:
    """A new, private directory for several runs; absolute.

    Args:
        out: The directory itself, new or empty; None makes `bench-<UTC time>-<id>` beside runs.
        now: An aware time.

    Raises:
        ConfigError: `out` is no directory or not empty, or nothing can be made there.
    """
    path = (DEFAULT_PARENT / f"bench-{new_run_id(now)}" if out is None else out).absolute()
    with cannot(f"use {path} as a directory", option="--out", error=ConfigError):
        if out is None:
            _make_parent()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            refuse(f"--out: {path} is not empty; name an empty or a new directory")
    return path


def _usable(path: Path, option: str, out: str = OUT_OPTION) -> AbstractContextManager[None]:
    """Turns what the system says against a run directory into a `ConfigError`."""
    advice = f"; point {out} at a writable directory"
    what = f"use {path} as a run directory"
    return cannot(what, advice, option=option, error=ConfigError)


def _make_parent() -> None:
    if not DEFAULT_PARENT.is_dir():
        DEFAULT_PARENT.mkdir(mode=0o700)
        # Prompts may be confidential and tables are large: keep them out of commits made in haste.
        (DEFAULT_PARENT / ".gitignore").write_text("*\n", encoding="utf-8")


def _lock(path: Path, option: str = OUT_OPTION) -> int:
    lock_fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock_fd)
        holder = read_holder(path)
        who = "another process" if holder is None else f"the run with process id {holder.pid}"
        refuse(f"{path} is in use by {who}; wait for its end or use another {option}")
    return lock_fd


class _Named(msgspec.Struct):
    run_id: str


def _named_by_manifest(path: Path) -> str:
    """The run's id where its lock was damaged; its directory had that for a name."""
    try:
        return msgspec.json.decode(read_file(path / MANIFEST_NAME), type=_Named).run_id
    except (OSError, *NOT_THAT_JSON):
        return path.name


def _refuse_earlier_run(path: Path, option: str, *, can_be_finished: bool) -> None:
    journal = path / JOURNAL_NAME
    if journal.is_dir() and any(segment.lstat().st_size for segment in segments(journal)):
        finish = f", or finish that run with pytest --ultrapar-resume={path}"
        refuse(
            f"{option}: {path} holds an earlier run; use another directory"
            f"{finish if can_be_finished else ''}"
        )
    for name in _UNBEGUN:
        (path / name).unlink(missing_ok=True)


def _prepare(path: Path, lock_fd: int, run_id: str) -> None:
    (path / JOURNAL_NAME).mkdir(mode=0o700, exist_ok=True)
    sweep_temporaries(path)
    sweep_temporaries(path / PARTS_NAME)
    write_holder(lock_fd, run_id)
