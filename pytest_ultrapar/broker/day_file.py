"""The file of one daily count. It is locked and rewritten as a whole before units are spent.

Each write replaces the file, and the new file is on disk when the write returns
(`system/files.py`). If the process is killed or the power fails, the old or the new file remains,
never a partial one. The lock is a separate file, because a lock on the count's own file would stay
on the old file when that file is replaced. The lock uses `flock`; `key_lock_file` explains why.
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
"""The file versions that can be read. Entries in version 1 start with two additional numbers."""
_MAGIC = b"ultrapar day"
_LOCK_WAIT_S, _LOCK_LOOK_S = 2.0, 0.002
"""The maximum wait for the lock, and the time between two attempts, in seconds. A process holds the
lock during one write, which takes 0.6 ms on a virtual disk and 40 ms on a spinning one."""

Span = tuple[int, int]
"""The period in which units were sent: its start and end, in seconds on the wall clock."""


class DayRecord(msgspec.Struct, frozen=True):
    """The content of a daily count's file.

    Attributes:
        shown: The kind of unit and the limit's name, for messages.
        sent: The start, the end and the units of each span. While requests are sent, a few entries
            are added every 5 minutes.
    """

    shown: str
    sent: list[tuple[int, ...]]

    @classmethod
    def of(cls, shown: str, spans: Mapping[Span, int]) -> DayRecord:
        """Create a record from these spans."""
        return cls(shown, sorted((*span, units) for span, units in spans.items()))

    def spans(self) -> Counter[Span]:
        """The units by span."""
        found = Counter[Span]()
        for *_, begin, end, units in self.sent:
            found[begin, end] += units
        return found


def state_directory(environ: Mapping[str, str]) -> Path:
    """The directory that contains the files: `$ULTRAPAR_STATE_DIR`, if this variable is set.

    Otherwise it is `$XDG_STATE_HOME/ultrapar` or, if that variable is not set either,
    `~/.local/state/ultrapar`. The directory may not exist yet: the first write creates it.

    Raises:
        ConfigError: Neither variable is set and this user has no home directory, or other users can
            write to the directory and could therefore change the counts.
    """
    directory = _state_path(environ)
    advice = (
        f"; fix this, or set {DIRECTORY_VARIABLE} to another directory, the same for all runs on "
        "this machine"
    )
    count = cannot(f"store the counts of daily limits in {directory}", advice, error=ConfigError)
    with count, suppress(FileNotFoundError):
        check_private(directory)
    return directory


def _state_path(environ: Mapping[str, str]) -> Path:
    if named := environ.get(DIRECTORY_VARIABLE):
        return Path(named).absolute()
    shared = environ.get("XDG_STATE_HOME", "")
    # The XDG Base Directory Specification requires that relative paths are ignored.
    if shared.startswith("/"):
        return Path(shared) / "ultrapar"
    if home := environ.get("HOME"):
        return Path(home).absolute() / ".local" / "state" / "ultrapar"
    try:
        return Path.home() / ".local" / "state" / "ultrapar"
    except RuntimeError as error:
        raise ConfigError(
            "cannot store the counts of daily limits: this user has no home directory; set "
            f"{DIRECTORY_VARIABLE} to a directory"
        ) from error


def file_name(counted: str, level: str, name: str, key: str = "") -> str:
    """The file name of one daily count. All runs on a machine use the same name.

    Args:
        counted: `requests` or `tokens`.
        level: The level of the limit: `key`, `provider`, ...
        name: Identifies the limit within its level and key. It is empty for `key`, the model family
            for `key_model`, and the provider and instance for `lane`. For `instance` and `provider`
            it is the limit's name, for `pool` the names of the providers.
        key: The `key_identity` of the key if the level is `key`, `key_model` or `lane`; otherwise
            empty. A key that is used on several servers has several identities, with one file and
            one ledger for each. A send must have room in each of these ledgers, so that no count is
            lost if a server is added or removed.

    Returns:
        `counted`, a hyphen, and a digest of all arguments.
    """
    said = json.dumps([counted, level, name, key], ensure_ascii=True).encode()
    return f"{counted}-{hashlib.sha256(said).hexdigest()[:40]}"


class DayMemory:
    """The file of one daily count. Several processes may share it: each update takes a lock."""

    def __init__(self, directory: Path, name: str, shown: str) -> None:
        """Set the path of the file. Nothing is read or written yet.

        Args:
            directory: The `state_directory`. The first write creates it, readable only by its
                owner.
            name: The result of `file_name`.
            shown: The kind of unit and the limit's name, for messages: "requests per day for
                lab/key0".
        """
        self.path = directory / f"{name}.day"
        self._lock_path = directory / f"{name}.lock"
        self._new_path = directory / f"{name}.new"
        self.shown = shown

    @property
    def exists(self) -> bool:
        """Whether the file exists. If it does not, as on a new machine, the count is zero."""
        return os.path.lexists(self.path)

    def read(self) -> DayRecord | None:
        """The content of the file; None if it does not exist.

        Raises:
            ConfigError: The file cannot be read, is damaged or was written by another version.
        """
        advice = "; check the file's owner and permissions"
        read = cannot(f"read {self.path}, which counts {self.shown}", advice, error=ConfigError)
        with read, suppress(FileNotFoundError):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
                return self._parse(file.read())
        return None

    def update(self, change: Callable[[DayRecord | None], DayRecord]) -> None:
        """Replace the content of the file. When this returns, the new content is on disk.

        Args:
            change: Returns the new content, given the old content (None if there is no file).

        Raises:
            ConfigError: As in `read`, or the file cannot be locked or written. The file then
                contains either the old or the new content.
        """
        advice = (
            "; fix this, or move all files in the file's directory to another directory and set "
            f"{DIRECTORY_VARIABLE} to that directory for all runs on this machine"
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
            self._refuse("is damaged or was not written by ultrapar: restore it, or")
        if words[2] not in _VERSIONS:
            self._refuse("was written by another version of ultrapar: use that version, or")
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
            f"{self.path}, which counts {self.shown}, {why} delete the file after 24 h without "
            "requests; the count then restarts at zero"
        )


def _make(directory: Path) -> None:
    """Create a directory that only its owner can use and that survives a power failure."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_path(directory.parent)
