"""Publish a file whole or not at all, even across a power loss; read files.

The order matters: sync the content, then rename the file, then sync the directory. A file that was
renamed before its sync may be empty after a power loss. If the directory was not synced, the old
file may be back.
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
    """Turn an `OSError` about a file into one sentence: `cannot <do>: <why>`.

    Args:
        do: The action. If it does not name the file of the error, the message adds the file.
        advice: Text to append to the sentence.
        option: The option that named the file; it comes before the sentence.
        error: The class to raise.

    Raises:
        UltraparError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as cause:
        # The number of a descriptor is not a file name.
        name = cause.filename if isinstance(cause.filename, str) else ""
        is_named = any(f"{name}{end}" in f"{do} " for end in (" ", ","))
        # `do` names the file for which a temporary file stands.
        is_said = not name or is_named or name.endswith(TEMPORARY_SUFFIX)
        where = "" if is_said else f"{name}: "
        # Errors of pyarrow have neither a number nor a file name.
        why = cause.strerror or cause
        raise error(f"{option and f'{option}: '}cannot {do}: {where}{why}{advice}") from cause


TEMPORARY_SUFFIX = ".tmp"
NOT_THAT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for bytes that are not the expected JSON: not text, or nested too deep."""


def temporary_for(path: Path) -> Path:
    """A name next to `path` for an unfinished file: in the same file system, of this process."""
    return path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")


def sweep_temporaries(directory: Path) -> None:
    """Remove the temporary files of killed processes from a directory.

    The temporary file of a live process stays. A file also stays if another process has its id now.
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
    """Move a finished temporary file to `path`.

    Raises:
        OSError: The file cannot be synced or moved; `path` is then unchanged.
    """
    sync_path(temporary)
    os.replace(temporary, path)  # noqa: PTH105 - as its neighbours
    sync_path(path.parent)


def replace_content(path: Path, content: bytes, temporary: Path) -> None:
    """Replace `path` with a new file that only its owner can read.

    Raises:
        OSError: The file cannot be written, synced or moved. The caller must then remove
            `temporary`. If the process is killed, the next call overwrites that file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    publish(temporary, path)


def write_whole(path: Path, content: bytes | None) -> None:
    """Write a small file that only its owner can read; None removes the file if it exists.

    Raises:
        ResultsError: The file cannot be written; an earlier file of the same name is unchanged.
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
    """The text of a JSON object that is not empty, with the CRC-32 of the rest as first field."""
    return b'%b%08x",%b' % (_SUMMED, crc32(text[1:]), text[1:])


def is_changed(text: bytes) -> bool:
    """Whether a text of `with_checksum` was changed; files of earlier versions have no checksum."""
    rest = b"{" + text[len(with_checksum(b"")) :]
    return text.startswith(_SUMMED) and text != with_checksum(rest)


def read_whole(path: Path, kind: type[T], missing: M, wrong: str) -> T | M:
    """The content of a small JSON file of a run; `missing` if the file does not exist.

    Args:
        path: The file.
        kind: The type that it must contain.
        missing: The value if the file does not exist.
        wrong: The words of the error about other content, such as "is not a summary".

    Raises:
        ResultsError: The file cannot be read, is damaged, or has other content.
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
    """Open a regular file to read it, and follow links. Open every file that a user names with it.

    Reading a pipe might block forever, and `/dev/zero` never ends.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise OSError(errno.EINVAL, f"it is {kind}", str(path))


def read_file(path: Path | str) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: As for `open_file`.
    """
    with open_file(path) as file:
        return file.read()


def check_private(directory: Path) -> None:
    """Make sure that only this user can create files in a directory or see their names.

    Raises:
        OSError: Other users have access, it is a link, or it does not exist.
    """
    found = directory.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & 0o077:
        why = "it must be a directory that you own, with mode 0700, and not a link"
        raise OSError(errno.EACCES, why, str(directory))


def digest_of(path: Path) -> str:
    """SHA-256 (hex) of a file.

    Raises:
        OSError: The file cannot be read.
    """
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_path(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
