"""The file of one count per day: read, locked, and written whole before its units are spent.

Each write replaces the file and is on disk when it returns (`system/files.py`): what a kill or a
power failure leaves is the file before or after, never a part. The lock is a file of its own, since
the one that is replaced cannot be locked, and `flock` for the reasons of `key_lock`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.system.clock import boot_s
from pytest_ultrapar.system.files import cannot, check_private, replace_content, sync_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import NoReturn

DIRECTORY_VARIABLE = "ULTRAPAR_STATE_DIR"
VERSION = 2
_VERSIONS = (b"1", b"2")
"""Those that are read. Entries of the first have two more numbers at their front."""
_MAGIC = b"ultrapar day"
_LOCK_WAIT_S, _LOCK_LOOK_S = 2.0, 0.002
"""Others hold the lock for one write: 0.6 ms on a virtual disk, some 40 ms on one that spins."""

Span = tuple[int, int]
"""When units were sent: from and until, by the wall clock in seconds."""


class DayRecord(msgspec.Struct, frozen=True):
    """What stands in a file.

    Attributes:
        shown: What is counted, for people.
        sent: Units by when they were sent, `Span` and number: some entries for each 5 minutes.
    """

    shown: str
    sent: list[tuple[int, ...]]

    @classmethod
    def of(cls, shown: str, spans: Mapping[Span, int]) -> DayRecord:
        """The record of these spans."""
        return cls(shown, sorted((*span, units) for span, units in spans.items()))

    def spans(self) -> Counter[Span]:
        """Units by span."""
        found = Counter[Span]()
        for *_, begin, end, units in self.sent:
            found[begin, end] += units
        return found


def state_directory(environ: Mapping[str, str]) -> Path:
    """`$ULTRAPAR_STATE_DIR`, else `$XDG_STATE_HOME/ultrapar`, else `~/.local/state/ultrapar`.

    It need not be there; the first write makes it.

    Raises:
        ConfigError: None of them is set, and this user has no home; or others can write there, who
            could spend a day's limit or give it back.
    """
    directory = _state_path(environ)
    advice = (
        f"; fix that, or name another directory in the environment variable {DIRECTORY_VARIABLE}, "
        "the same for all runs of this host"
    )
    count = cannot(f"count limits in {directory}", advice, error=ConfigError)
    with count, suppress(FileNotFoundError):
        check_private(directory)
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
        raise ConfigError(
            "limits per day are kept in a file, and this user has no home directory; name a "
            f"directory in the environment variable {DIRECTORY_VARIABLE}"
        ) from error


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

    def read(self) -> DayRecord | None:
        """What the file says; None if there is none.

        Raises:
            ConfigError: It cannot be read or trusted: damaged, or of another version.
        """
        advice = "; check its owner and permissions"
        read = cannot(f"read {self.path}, which counts {self.shown}", advice, error=ConfigError)
        with read, suppress(FileNotFoundError):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
                return self._parse(file.read())
        return None

    def update(self, change: Callable[[DayRecord | None], DayRecord]) -> None:
        """Replace what the file says; it is on disk when this returns.

        Args:
            change: Makes the new content of the old one, None if there is no file.

        Raises:
            ConfigError: As `read`, or it cannot be locked or written; the file is as before, or as
                wanted.
        """
        advice = (
            "; fix that, or move its files to another directory and name that in "
            f"{DIRECTORY_VARIABLE}, the same for all runs of this host"
        )
        what = f"write {self.path}, which counts {self.shown}"
        with cannot(what, advice, error=ConfigError):
            _make(self.path.parent)
            with self._locked():
                self._write(change(self.read()))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._lock_path, flags, 0o600)
        try:
            until_s = boot_s() + _LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if boot_s() > until_s:
                        raise
                    sleep(_LOCK_LOOK_S)
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
        if words[2] not in _VERSIONS:
            self._refuse("is of another version of ultrapar: use that one, or")
        payload = rest[:-1]
        try:
            if rest.endswith(b"\n") and words[3] == b"%08x" % crc32(payload):
                record = msgspec.json.decode(payload, type=DayRecord)
                record.spans()
                return record
        except (msgspec.DecodeError, ValueError):
            pass
        return self._refuse("is damaged: restore it, or")

    def _refuse(self, why: str) -> NoReturn:
        refuse(
            f"{self.path}, which counts {self.shown}, {why} delete it after 24 h without requests; "
            "the count then restarts at zero"
        )


def _make(directory: Path) -> None:
    """Make a directory, private, so that it outlasts a power failure."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_path(directory.parent)
