"""The directory of a run: create it, lock it against a second run, and find it again."""

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
from pytest_ultrapar.store.journal_history import FILE_NAME as RECOVERED_NAME
from pytest_ultrapar.store.run_lock import LOCK_NAME, read_holder, run_id_of, write_holder
from pytest_ultrapar.store.string_parts import PARTS_NAME
from pytest_ultrapar.system.files import NOT_THAT_JSON, cannot, read_file, sweep_temporaries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


DEFAULT_PARENT = Path(".ultrapar")
OUT_OPTION = "--ultrapar-out"
LATEST = "latest"
COMPACT_LOCK_NAME = "compact.lock"
"""The file that is locked by the process that makes the tables. That process may outlive the run's
own process."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""The flags for opening a lock file. If the file is a pipe, opening it does not block."""
JOURNAL_NAME = "journal"
SPENDING_FILE = "spending.log"
"""The file in the run directory with the spending against the run's budgets."""
SUMMARY_FILE = "summary.json"
"""The file with the `RunSummary`. It is written after all tables and replaced as a whole."""


_UNBEGUN = (*PLAN_NAMES, RECOVERED_NAME, CLOCKS_NAME, MANIFEST_NAME, SPENDING_FILE)
"""The files, apart from the lock and the journal, that a run may have written if it stopped before
its first episode."""


def new_run_id(now: datetime) -> str:
    """`<UTC time>-<six hex digits>`."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


class RunDirectory:
    """The directory of one run, locked from `create` or `open_existing` to `close`.

    The kernel releases the lock when the process ends for any reason.

    Attributes:
        path: The absolute path.
        run_id: `<UTC time>-<six hex digits>`; a resumed run keeps it.
        journal: The directory of the journal's segments; it exists.
    """

    def __init__(
        self, path: Path, run_id: str, lock_fd: int, others: frozenset[str] | None = None
    ) -> None:
        """Take over the lock.

        Args:
            path: The absolute path.
            run_id: The run's id.
            lock_fd: File descriptor of the locked file.
            others: Names of entries that `discard` keeps, because they were there before this
                session; None if the directory did not exist.
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
        """Create and lock the directory of a new run.

        If an earlier run in the directory stopped before its first episode, the directory is used
        again.

        Args:
            out: The directory to use; None creates a new one in `DEFAULT_PARENT`.
            now: The current time with its time zone; it becomes part of the run's id.
            option: The option that gave `out`, for messages.
            can_be_finished: Whether the error about an earlier run in `out` may suggest finishing
                that run.

        Raises:
            ConfigError: The directory cannot be created or written. Or `out` is not a directory, is
                in use, or contains an earlier run or other files.
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
                    f"{option}: {path} is not empty and contains no run; choose an empty or new "
                    "directory"
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
            ConfigError: The directory contains no run, is in use by another process, or cannot be
                written.
        """
        path = path.absolute()
        with _usable(path, "--ultrapar-resume"):
            if not (path / LOCK_NAME).is_file():
                refuse(f"{path} contains no run: it has no {LOCK_NAME}")
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
        """Make `latest` point to this directory. Call this only when the run has cases to run.

        Otherwise a session that ends during collection would hide the interrupted run that
        `--ultrapar-resume=latest` is meant to find.

        Raises:
            ResultsError: The link cannot be created. The run can continue without it.
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
        """Directories of all runs next to this one and in `DEFAULT_PARENT`, including this one."""
        parents = {self.path.parent, DEFAULT_PARENT.absolute()}
        return {lock.parent for each in parents for lock in each.glob(f"*/{LOCK_NAME}")}

    def discard(self) -> None:
        """Remove the files of a run whose session had nothing to run.

        If the directory existed before, it stays with its other files. Later calls do nothing.
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
        # Close it last: until then no other process can begin a run here.
        self.close()

    def close(self) -> None:
        """Release the lock; later calls do nothing."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd = -1


@contextmanager
def held(run: Path, option: str) -> Iterator[None]:
    """Lock an earlier run, so that no process writes to it meanwhile; its files may be read-only.

    Args:
        run: The directory of the run.
        option: The option that named the run, for messages.

    Raises:
        ConfigError: Another process is writing to it.
    """
    fd = -1
    with suppress(OSError):
        fd = os.open(run / LOCK_NAME, _READ)
    try:
        if fd >= 0:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                refuse(f"{option}: {run} is in use; wait until the run ends")
            except OSError:
                pass  # a file system without locks: no other process has a lock there either
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def in_use(run: Path) -> bool:
    """Whether another process is writing to a run, judging by the run's lock."""
    try:
        with held(run, ""):
            return False
    except ConfigError:
        return True


def remove_run(run: Path, seen_at: datetime) -> None:
    """Remove the directory of a run and its content; links are removed, but not their targets.

    If this is interrupted, the rest is still recognised as a run, so the removal can be repeated.

    Args:
        run: The directory of the run.
        seen_at: When the run was selected for removal, with the time zone.

    Raises:
        ConfigError: It is not a run, contains another run, is in use, was used since `seen_at`, or
            cannot be removed.
    """
    if run_id_of(run) is None:
        refuse(f"{run} is not a run directory; it was not removed")
    flags = _READ | os.O_NOFOLLOW
    fds = []
    with cannot(f"remove {run}", error=ConfigError):
        try:
            # Use this descriptor for everything: a process might replace the directory meanwhile.
            fds.append(folder := os.open(run, flags | os.O_DIRECTORY))
            for name in (LOCK_NAME, COMPACT_LOCK_NAME):
                with suppress(FileNotFoundError):
                    fds.append(os.open(name, flags, dir_fd=folder))
                    fcntl.flock(fds[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Each session writes its process id into the lock.
            if os.stat(LOCK_NAME, dir_fd=folder).st_mtime > seen_at.timestamp():
                refuse(f"{run} was used after it was selected for removal; it was not removed")
            below = [one.parent for one in run.rglob(LOCK_NAME) if one.parent != run]
            if below:
                refuse(f"{run} was not removed: it contains another run, {below[0]}")
            _empty(folder)
            os.unlink(LOCK_NAME, dir_fd=folder)
            run.rmdir()
        except BlockingIOError:
            refuse(f"{run} is in use; it was not removed")
        finally:
            for fd in fds:
                os.close(fd)


def _empty(folder: int) -> None:
    """Remove the content of an open directory, except the lock that marks it as a run."""
    with os.scandir(folder) as entries:
        for entry in [*entries]:
            if entry.name == LOCK_NAME:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=folder)


def remove_latest_link(parent: Path, removed: Collection[Path]) -> None:
    """Remove the link `latest` from a folder if it points to one of the removed runs.

    Args:
        parent: The folder.
        removed: Absolute paths of the runs.
    """
    link = parent.absolute() / LATEST
    with suppress(OSError):
        if link.is_symlink() and link.parent / link.readlink() in removed:
            link.unlink()


def resolve_run(name: str) -> Path:
    """Find a run's directory by its name: `latest`, a path, or the id of a run in `DEFAULT_PARENT`.

    Raises:
        ConfigError: There is no such run, or a directory cannot be read.
    """
    if not name:
        refuse(f"the name of a run is empty; {_NAME_ONE}")
    in_parent = DEFAULT_PARENT / name
    candidates = [in_parent] if name == LATEST else [Path(name), in_parent]
    with cannot(f"look for the run {name}", error=ConfigError):
        for candidate in candidates:
            if (candidate / LOCK_NAME).is_file():
                return candidate.resolve()
            below = sorted(str(lock.parent) for lock in candidate.glob(f"*/{LOCK_NAME}"))
            if name != LATEST and candidate != DEFAULT_PARENT and below:
                named = ", ".join(below[:8])
                refuse(f"{candidate} is a folder with runs ({len(below)}); specify one: {named}")
    places = " or ".join(dict.fromkeys(map(str, candidates)))
    raise ConfigError(f"no run found at {places}; {_NAME_ONE}")


_NAME_ONE = f"specify a run directory, the id of a run in {DEFAULT_PARENT}, or {LATEST}"


def new_directory(out: Path | None, now: datetime) -> Path:
    """Create a private directory for several runs, and return its absolute path.

    Args:
        out: The directory to use, new or empty; None creates `bench-<UTC time>-<id>` in
            `DEFAULT_PARENT`.
        now: The current time with its time zone.

    Raises:
        ConfigError: `out` is not a directory, is not empty, or cannot be created.
    """
    path = (DEFAULT_PARENT / f"bench-{new_run_id(now)}" if out is None else out).absolute()
    with cannot(f"use {path} as a directory", option="--out", error=ConfigError):
        if out is None:
            _make_parent()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            refuse(f"--out: {path} is not empty; choose an empty or new directory")
    return path


def _usable(path: Path, option: str, out: str = OUT_OPTION) -> AbstractContextManager[None]:
    """Turn a system error about a run directory into a `ConfigError`."""
    advice = f"; set {out} to a writable directory"
    what = f"use {path} as a run directory"
    return cannot(what, advice, option=option, error=ConfigError)


def _make_parent() -> None:
    if not DEFAULT_PARENT.is_dir():
        DEFAULT_PARENT.mkdir(mode=0o700)
        # Prompts may be confidential and tables are large: keep them out of accidental commits.
        (DEFAULT_PARENT / ".gitignore").write_text("*\n", encoding="utf-8")


def _lock(path: Path, option: str = OUT_OPTION) -> int:
    lock_fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock_fd)
        holder = read_holder(path)
        who = "another process" if holder is None else f"the run with process id {holder.pid}"
        refuse(f"{path} is in use by {who}; wait until it ends or change {option}")
    return lock_fd


class _Named(msgspec.Struct):
    run_id: str


def _named_by_manifest(path: Path) -> str:
    """The id of a run with a damaged lock, from its manifest; without one, the directory's name."""
    try:
        return msgspec.json.decode(read_file(path / MANIFEST_NAME), type=_Named).run_id
    except (OSError, *NOT_THAT_JSON):
        return path.name


def _refuse_earlier_run(path: Path, option: str, *, can_be_finished: bool) -> None:
    journal = path / JOURNAL_NAME
    if journal.is_dir() and any(segment.lstat().st_size for segment in segments(journal)):
        finish = f", or finish that run with pytest --ultrapar-resume={path}"
        refuse(
            f"{option}: {path} contains an earlier run; use another directory"
            f"{finish if can_be_finished else ''}"
        )
    for name in _UNBEGUN:
        (path / name).unlink(missing_ok=True)


def _prepare(path: Path, lock_fd: int, run_id: str) -> None:
    (path / JOURNAL_NAME).mkdir(mode=0o700, exist_ok=True)
    sweep_temporaries(path)
    sweep_temporaries(path / PARTS_NAME)
    write_holder(lock_fd, run_id)
