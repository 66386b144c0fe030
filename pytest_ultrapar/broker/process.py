"""Starts and stops the broker's process. The controller uses this."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from pytest_ultrapar.broker.adaptive.server_load import watch_variables
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.errors import ConfigError, UltraparError
from pytest_ultrapar.system.child import Child

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


MAX_PATH_BYTES = 100
"""A Unix socket's path may have 108 bytes on Linux and 104 on BSD, including a final null byte."""
SOCKET_NAME = "s"
_LOCK_NAME = "lock"
_IN_RUN = "broker-"
_ELSEWHERE = "ultrapar-broker-"
"""The prefix for a directory outside the run's directory. It contains `ultrapar`, because other
programs also have files there."""


class BrokerDirectory:
    """A new directory with mode 0700, whose path is short enough for a socket.

    Attributes:
        path: The directory.
        fd: The file descriptor of the lock. Every process that inherits it keeps the directory
            locked.
        token: The secret of the broker's clients. It is never shown.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.token = secrets.token_hex(32)

    @classmethod
    def make(cls, run: Path) -> Self:
        """Create one in the run's directory, or in the system's temporary directory if that fails.

        Args:
            run: The run's directory.

        Raises:
            UltraparError: No directory is suitable.
        """
        why = ""
        for parent, prefix in ((run, _IN_RUN), *((each, _ELSEWHERE) for each in _shared())):
            if len(os.fsencode(parent.resolve() / f"{prefix}xxxxxxxx/{SOCKET_NAME}")) > (
                MAX_PATH_BYTES
            ):
                why = why or f"the path {parent} is too long"
                continue
            try:
                return cls(*_locked(parent.resolve(), prefix))
            except OSError as error:
                why = f"{parent}: {error.strerror}"
        raise UltraparError(
            f"cannot make a directory for the broker's socket: {why}; set the environment variable "
            f"TMPDIR to a writable directory (socket paths can have at most {MAX_PATH_BYTES} bytes)"
        )

    @property
    def socket(self) -> Path:
        """The path of the socket on which the broker listens."""
        return self.path / SOCKET_NAME

    def remove(self) -> None:
        """Remove the directory with its contents. Idempotent."""
        if self.fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self.fd)
        self.fd = -1


def sweep(runs: Iterable[Path]) -> None:
    """Remove the broker directories that no process uses any more.

    Args:
        runs: The run directories to search. The system's temporary directory is also searched.
    """
    found = [each for run in runs for each in run.glob(f"{_IN_RUN}*")]
    found += [each for parent in _shared() for each in parent.glob(f"{_ELSEWHERE}*")]
    for path in found:
        # Skip directories that are in use, that are being removed, or that belong to another user.
        with contextlib.suppress(OSError):
            _remove_if_left(path)


def _shared() -> list[Path]:
    return list(dict.fromkeys([Path(tempfile.gettempdir()), Path("/tmp")]))  # noqa: S108


def _locked(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        # mkdtemp makes a directory that only this user can enter, regardless of its parent.
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
        # Another run removed the directory before this process could lock it, as if it belonged to
        # a dead run.
        os.close(fd)


def _remove_if_left(path: Path) -> None:
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        return
    fd = _open_lock(path)
    try:
        if _lock(fd):
            # Remove only a broker's files. If the directory contains other files, rmdir fails.
            for name in (SOCKET_NAME, _LOCK_NAME):
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


SERVER_MODULE = "pytest_ultrapar.broker.server"
READY_LINE = b"ready\n"


class ServerConfig(msgspec.Struct, frozen=True):
    """The server's configuration: one line of JSON on its standard input.

    The standard input stays open as long as the controller lives.

    Attributes:
        settings: The settings of the broker.
        socket_path: The path of the socket to listen on, in a directory that no other user can
            enter. The server removes this directory.
        token: The secret of the clients.
    """

    settings: BrokerSettings
    socket_path: str
    token: str

    def __repr__(self) -> str:
        return f"ServerConfig(socket_path={self.socket_path!r})"


_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")
_KEPT_PREFIXES = ("PYTHON", "LC_", "COVERAGE_")


class BrokerProcess:
    """The broker's process during a run.

    It ends when `stop` is called or when the process that started it is gone.

    Attributes:
        path: The path of its socket.
        token: The secret of its clients. It is never shown.
        pid: Its process id.
    """

    def __init__(self, child: Child, directory: BrokerDirectory) -> None:
        self._child = child
        self._directory = directory
        self.path = directory.socket
        self.token = directory.token
        self.pid = child.pid

    def __repr__(self) -> str:
        return f"BrokerProcess(pid={self.pid}, path={str(self.path)!r})"

    @classmethod
    def start(
        cls, settings: BrokerSettings, directory: BrokerDirectory, *, inherited: Sequence[int] = ()
    ) -> BrokerProcess:
        """Start the process and wait until it is listening.

        Args:
            settings: The settings of the broker.
            directory: The directory for its socket. The process removes this directory when it
                ends.
            inherited: File descriptors that stay open as long as the process lives: the locks of
                the keys for which it grants leases.

        Raises:
            ConfigError: A file of daily limits cannot be read or trusted.
            UltraparError: The process did not start. The message contains its output.
        """
        config = ServerConfig(settings, str(directory.socket), directory.token)
        child = Child.start(
            SERVER_MODULE,
            stdin=msgspec.json.encode(config) + b"\n",
            environ=_environment(_read_variables(settings)),
            inherited=[*inherited, directory.fd],
        )
        broker = cls(child, directory)
        try:
            line = child.ready_line()
        except UltraparError as error:
            broker.stop()
            raise UltraparError(f"the broker's process {error}") from None
        if line != READY_LINE:
            broker.stop()
            raise ConfigError(line.decode().strip())
        return broker

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._child.is_alive

    def said(self) -> str:
        """The end of what the process wrote to standard error; empty unless it failed."""
        return self._child.said()

    def stop(self) -> None:
        """End the process, after 5 s by force, and remove its directory. Idempotent."""
        self._child.stop()
        self._directory.remove()


def _read_variables(settings: BrokerSettings) -> set[str]:
    shares = () if settings.shares is None else settings.shares.variables
    return {*watch_variables(settings.pool), *shares}


def _environment(also: Collection[str]) -> dict[str, str]:
    """The variables that Python needs, and those in `also`. The process needs no API keys."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES) or name in also
    }
