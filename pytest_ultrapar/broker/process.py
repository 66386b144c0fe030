"""Starts and ends the broker's process; used by the controller."""

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
"""A Unix socket's path ends at 108 bytes on Linux and at 104 on BSD, the closing zero included."""
SOCKET_NAME = "s"
_LOCK_NAME = "lock"
_IN_RUN = "broker-"
_ELSEWHERE = "ultrapar-broker-"
"""Where others have files, too, the name says whose it is."""


class BrokerDirectory:
    """A new directory with mode 0700 whose socket has a path that is short enough.

    Attributes:
        path: Where it is.
        fd: The lock. A process that inherits it uses the directory, too.
        token: What a client of the broker must know; never shown.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.token = secrets.token_hex(32)

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
        raise UltraparError(
            f"no directory for the broker's socket, whose path must have at most {MAX_PATH_BYTES} "
            f"bytes ({said}); name one in the environment variable TMPDIR"
        )

    @property
    def socket(self) -> Path:
        """Where the broker listens or will."""
        return self.path / SOCKET_NAME

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
    """One line of JSON on the standard input, which then stays open while the controller lives.

    Attributes:
        settings: Of the broker.
        socket_path: Where to listen, in a directory that nobody else can enter and that the server
            removes.
        token: What clients must know.
    """

    settings: BrokerSettings
    socket_path: str
    token: str

    def __repr__(self) -> str:
        return f"ServerConfig(socket_path={self.socket_path!r})"


_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")
_KEPT_PREFIXES = ("PYTHON", "LC_", "COVERAGE_")


class BrokerProcess:
    """The broker's process while a run is on.

    It ends with `stop`, and by itself when the process that started it is gone.

    Attributes:
        path: Its socket.
        token: What a client must know; never shown.
        pid: The process.
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
        """Start the process and wait until it listens.

        Args:
            settings: Of the broker.
            directory: Where it listens; it removes that when it ends.
            inherited: File descriptors that stay open while the process lives: the locks of the
                keys that it grants leases for.

        Raises:
            ConfigError: The memory of a day cannot be read or trusted.
            UltraparError: When it does not come up, with what it said.
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
            said = child.ready_line()
        except UltraparError as error:
            broker.stop()
            raise UltraparError(f"the broker's process {error}") from None
        if said != READY_LINE:
            broker.stop()
            raise ConfigError(said.decode().strip())
        return broker

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._child.is_alive

    def said(self) -> str:
        """What the process wrote to its standard error, the last of it: empty unless it failed."""
        return self._child.said()

    def stop(self) -> None:
        """End the process and remove its directory; at once, and any number of times."""
        self._child.stop()
        self._directory.remove()


def _read_variables(settings: BrokerSettings) -> set[str]:
    shares = () if settings.shares is None else settings.shares.variables
    return {*watch_variables(settings.pool), *shares}


def _environment(also: Collection[str]) -> dict[str, str]:
    """The variables an interpreter needs and `also` some others: the broker needs no key."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES) or name in also
    }
