"""The file of one count per day: read, locked, and written whole before its units are spent.

Each write replaces the file and is on disk when it returns (`publish.py`): what a kill or a power
failure leaves is the file before or after, never a part. The lock is a file of its
own, since the one that is replaced cannot be locked, and `flock` for the reasons of `key_lock`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.publish import check_private, replace_content, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import NoReturn

    from pytest_ultrapar.clock import Instant

DIRECTORY_VARIABLE = "ULTRAPAR_STATE_DIR"
VERSION = 1
_MAGIC = b"ultrapar day"
_FUTURE_S = 300.0
"""By so much the clock may have been set back between two starts of the host."""
_LOCK_WAIT_S, _LOCK_LOOK_S = 2.0, 0.002
"""Others hold the lock for one write: 0.6 ms on a virtual disk, some 40 ms on one that spins."""
_LARGEST = 32_000_000
"""Bytes of a file. A day of one request per second takes 90 kB where answers come within a second,
and 1.3 MB where they take up to a quarter of an hour: it has an entry for each pair of minutes."""

Span = tuple[int, int, int, int]
"""When units were sent: from and until by the ledger's time, from and until by the wall clock."""


class DayRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in a file.

    Attributes:
        shown: What is counted, for people.
        frame: How often the ledger's time was set to the wall clock's; times compare within one.
        time_s: The ledger's time at the last write.
        wall_s: The wall clock then.
        boot_s: The boot clock then.
        boot_id: Of which start of the host `boot_s` is.
        sent: Units by when they were sent, `Span` and number.
    """

    shown: str
    frame: int
    time_s: float
    wall_s: float
    boot_s: float
    boot_id: str
    sent: list[tuple[int, int, int, int, int]]


def state_directory(environ: Mapping[str, str]) -> Path:
    """`$ULTRAPAR_STATE_DIR`, else `$XDG_STATE_HOME/ultrapar`, else `~/.local/state/ultrapar`.

    It need not be there; the first write makes it.

    Raises:
        ConfigError: None of them is set, and this user has no home; or others can write there, who
            could spend a day's limit or give it back.
    """
    directory = _state_path(environ)
    try:
        check_private(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        msg = (
            f"cannot count limits in {directory}: {error.strerror}; fix that, or name another "
            f"directory in the environment variable {DIRECTORY_VARIABLE}, the same for all runs of "
            "this host"
        )
        raise ConfigError(msg) from error
    return directory


def _state_path(environ: Mapping[str, str]) -> Path:
    if named := environ.get(DIRECTORY_VARIABLE):
        return Path(named).absolute()
    shared = environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and to be ignored.
    if shared.startswith("/"):
        return Path(shared) / "ultrapar"
    if home := environ.get("HOME"):
        return Path(home).absolute() / ".local" / "state" / "ultrapar"
    try:
        return Path.home() / ".local" / "state" / "ultrapar"
    except RuntimeError as error:
        msg = (
            "limits per day are kept in a file, and this user has no home directory; name a "
            f"directory in the environment variable {DIRECTORY_VARIABLE}"
        )
        raise ConfigError(msg) from error


def file_name(counted: str, level: str, name: str, key: str = "") -> str:
    """The name of the file of one counted thing, the same in all runs of a host.

    Args:
        counted: `requests` or `tokens`.
        level: Of the limit: `key`, `provider`, ...
        name: What identifies it within its level and key: for `key` nothing, for `key_model` the
            family, for `lane` provider and instance, for `instance` and `provider` the limit's
            name, for `pool` the providers' names.
        key: `key_identity` of the key for levels at or below a key, else empty. A key with several
            identities (it is used on several servers) has one file, and so one ledger, for each;
            all of them must allow a send, so that a server more or less forgets nothing.

    Returns:
        The counted thing and a digest.
    """
    said = json.dumps([counted, level, name, key], ensure_ascii=True).encode()
    return f"{counted}-{hashlib.sha256(said).hexdigest()[:40]}"


class DayMemory:
    """One file. Several processes may use it: what is read and then written is so under a lock."""

    def __init__(self, directory: Path, name: str, shown: str) -> None:
        """Touch nothing yet.

        Args:
            directory: `state_directory`; made, private, with the first write.
            name: `file_name`.
            shown: What is counted, for messages: "requests per day of lab/key0".
        """
        self.path = directory / f"{name}.day"
        self._lock_path = directory / f"{name}.lock"
        self._new_path = directory / f"{name}.new"
        self.shown = shown

    @property
    def exists(self) -> bool:
        """Whether there is a file; if not, the day begins at zero (a new host or container)."""
        return os.path.lexists(self.path)

    def read(self, now: Instant) -> DayRecord | None:
        """What the file says; None if there is none.

        Raises:
            ConfigError: It cannot be read or trusted: damaged, of another version, of the future.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
                content = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            msg = (
                f"cannot read {self.path}, which counts {self.shown}: {error.strerror}; check its "
                "owner and permissions"
            )
            raise ConfigError(msg) from error
        count = self._parse(content)
        # Within one start of the host the wall clock may be set back as one likes: the boot clock
        # says that the file is of the past.
        is_past = now.boot_id == count.boot_id and count.boot_s <= now.boot_s
        if not is_past and count.wall_s > now.wall_s + _FUTURE_S:
            then, today = _date(count.wall_s), _date(now.wall_s)
            self._refuse(f"was written at {then} and it is {today} now: set the clock right, or")
        return count

    def update(self, now: Instant, change: Callable[[DayRecord | None], DayRecord]) -> DayRecord:
        """Replace what the file says; it is on disk when this returns.

        Args:
            now: Now.
            change: Makes the new content of the old one, None if there is no file.

        Raises:
            ConfigError: As `read`, or it cannot be locked or written; the file is as before, or as
                wanted.
        """
        directory = self.path.parent
        try:
            _make(directory)
            with self._locked():
                count = change(self.read(now))
                self._write(count)
        except OSError as error:
            msg = (
                f"cannot write {self.path}, which counts {self.shown}: {error.strerror}; fix "
                "that, or move its files to another directory and name that in "
                f"{DIRECTORY_VARIABLE}, the same for all runs of this host"
            )
            raise ConfigError(msg) from error
        return count

    @contextmanager
    def _locked(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._lock_path, flags, 0o600)
        try:
            until_s = time.monotonic() + _LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(_LOCK_LOOK_S)
            yield
        finally:
            os.close(fd)

    def _write(self, count: DayRecord) -> None:
        payload = msgspec.json.encode(count)
        content = b"%b %d %08x\n%b\n" % (_MAGIC, VERSION, crc32(payload), payload)
        try:
            replace_content(self.path, content, self._new_path)
        except OSError:
            with suppress(OSError):
                self._new_path.unlink()
            raise

    def _parse(self, content: bytes) -> DayRecord:
        head, _, rest = content.partition(b"\n")
        words = head.split(b" ")
        if words[:2] != _MAGIC.split(b" ") or len(words) != len((b"ultrapar", b"day", 1, "crc")):
            self._refuse("is damaged or no file of ultrapar's: restore it, or")
        if words[2] != b"%d" % VERSION:
            self._refuse("is of another version of ultrapar: use that one, or")
        payload = rest[:-1]
        try:
            if rest.endswith(b"\n") and words[3] == b"%08x" % crc32(payload):
                return msgspec.json.decode(payload, type=DayRecord)
        except msgspec.DecodeError:
            pass
        return self._refuse("is damaged: restore it, or")

    def _refuse(self, why: str) -> NoReturn:
        msg = (
            f"{self.path}, which counts {self.shown}, {why} delete it after 24 h without requests; "
            "the count then restarts at zero"
        )
        raise ConfigError(msg)


def _make(directory: Path) -> None:
    """Make a directory, private, so that it outlasts a power failure."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_path(directory.parent)


def _date(wall_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(wall_s, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{wall_s:g} s after 1970"
