"""Puts a file in its place whole or not at all, also across a power loss; reads files.

The order is what holds this up: content on the disk, then the name, then the directory. Renamed
before it was synced, a file may be there after a power cut with nothing in it; without the sync of
the directory the old one may be back.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import msgspec

from pytest_ultrapar.errors import ResultsError, UltraparError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path


T = TypeVar("T")
M = TypeVar("M")


@contextmanager
def cannot(
    do: str, advice: str = "", *, option: str = "", error: type[UltraparError] = ResultsError
) -> Iterator[None]:
    """Say in a sentence what the system says against a file: `cannot <do>: <why>`.

    Args:
        do: What is tried. Where it does not name the file that the system complains of, that is
            said, too.
        advice: What stands behind the sentence.
        option: What named the file, to stand before the sentence.
        error: Of which kind it is.

    Raises:
        UltraparError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as cause:
        # A descriptor's number names nothing.
        name = cause.filename if isinstance(cause.filename, str) else ""
        is_named = any(f"{name}{end}" in f"{do} " for end in (" ", ","))
        # A temporary file stands for the one that is named.
        is_said = not name or is_named or name.endswith(TEMPORARY_SUFFIX)
        where = "" if is_said else f"{name}: "
        # Errors of pyarrow have neither a number nor a file name.
        why = cause.strerror or cause
        raise error(f"{option and f'{option}: '}cannot {do}: {where}{why}{advice}") from cause


TEMPORARY_SUFFIX = ".tmp"
NOT_THAT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no JSON of the wanted form: too deep, or no text, too."""


def temporary_for(path: Path) -> Path:
    """A name beside `path` for a file that is not yet whole: the same file system, this process."""
    return path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")


def sweep_temporaries(directory: Path) -> None:
    """Remove what killed processes had not yet published in a directory.

    A temporary file of a process that lives stays, as does one whose process id was taken again.
    """
    for path in directory.glob(f".*{TEMPORARY_SUFFIX}"):
        pid = path.stem.rpartition(".")[2]
        if pid.isdecimal() and not _lives(int(pid)):
            path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def publish(temporary: Path, path: Path) -> None:
    """Let a finished temporary file take the place of `path`.

    Raises:
        OSError: It cannot be synced or moved; `path` is then as it was before.
    """
    sync_path(temporary)
    os.replace(temporary, path)  # noqa: PTH105 - as its neighbours
    sync_path(path.parent)


def replace_content(path: Path, content: bytes, temporary: Path) -> None:
    """Let a new file, readable by its owner only, take the place of `path`.

    Raises:
        OSError: It cannot be written, synced or moved. What stands at `temporary` then is the
            caller's to remove; one that was killed there writes over it the next time.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    publish(temporary, path)


def write_whole(path: Path, content: bytes | None) -> None:
    """Write a small file, readable by its owner only; None removes it if it is there.

    Raises:
        ResultsError: It cannot be written; an earlier file of the name is as it was before.
    """
    temporary = temporary_for(path)
    with cannot(f"write {path}"):
        if content is None:
            path.unlink(missing_ok=True)
            return
        try:
            replace_content(path, content, temporary)
        finally:
            temporary.unlink(missing_ok=True)


_SUMMED = b'{"checksum":"'


def with_checksum(text: bytes) -> bytes:
    """The text of a JSON object that is not empty, with the CRC-32 of the rest in front."""
    return b'%b%08x",%b' % (_SUMMED, crc32(text[1:]), text[1:])


def is_changed(text: bytes) -> bool:
    """Whether a text of `with_checksum` is not as it was made; one of earlier versions has none."""
    rest = b"{" + text[len(with_checksum(b"")) :]
    return text.startswith(_SUMMED) and text != with_checksum(rest)


def read_whole(path: Path, kind: type[T], missing: M, wrong: str) -> T | M:
    """What a small JSON file of a run holds; `missing` where there is none.

    Args:
        path: The file.
        kind: What it must hold.
        missing: What stands for a file that is not there.
        wrong: What is said of a file that holds something else, such as "is no summary".

    Raises:
        ResultsError: It cannot be read, was changed, or holds something else.
    """
    try:
        text = read_file(path)
        if is_changed(text):
            raise ResultsError(f"{path} is damaged: its checksum is wrong")
        return msgspec.json.decode(text, type=kind)
    except FileNotFoundError:
        return missing
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    except NOT_THAT_JSON as error:
        raise ResultsError(f"{path} {wrong}: {error}") from error


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file to read it, links followed; the one way to open a file by a given name.

    A pipe that has a file's name would never answer, and `/dev/zero` never end.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
    raise OSError(errno.EINVAL, f"it is {kind}", str(path))


def read_file(path: Path | str) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: As `open_file`.
    """
    with open_file(path) as file:
        return file.read()


def check_private(directory: Path) -> None:
    """Make sure that only this user can put files into a directory or see their names.

    Raises:
        OSError: Others can, it is a link, or it is not there.
    """
    found = directory.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & 0o077:
        why = "it must be a directory of yours with mode 0700, and no link"
        raise OSError(errno.EACCES, why, str(directory))


def digest_of(path: Path) -> str:
    """SHA-256 (hex) of a file.

    Raises:
        OSError: It cannot be read.
    """
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_path(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on the disk itself."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
